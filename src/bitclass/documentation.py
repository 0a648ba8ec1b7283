"""Addresses of pages of the documentation, where the package was published with one."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

__all__ = ["DocumentedMixin", "site"]


@cache
def site() -> str:
    """Address of the documentation site; empty if the package has none.

    It is the URL named "Documentation" in the metadata of the installed package, which come from
    ``[project.urls]`` of pyproject.toml.
    """
    try:
        urls = metadata("bitclass").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    for url in urls:
        name, _, address = url.partition(",")
        if name.strip().lower() == "documentation":
            return str(address).strip().rstrip("/")
    return ""


class DocumentedMixin:
    """Estimators whose HTML representation links to their page of the documentation."""

    def _get_doc_link(self) -> str:
        if not site():
            return ""
        kind = type(self)
        # Classes are public in the package of their module.
        package = kind.__module__.rpartition(".")[0]
        return f"{site()}/api/generated/{package}.{kind.__name__}.html"
