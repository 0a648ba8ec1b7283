"""The `bitclass` command."""

from __future__ import annotations

from bitclass.cli.app import app, main

__all__ = ["app", "main"]
