"""Writing the report: a page, the tables as CSV, the figures as PNG, all numbers as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bitclass.experiments.cells import Cell, Outcome
from bitclass.experiments.claims import check_claims
from bitclass.experiments.figures import draw_figures
from bitclass.experiments.findings import Claim
from bitclass.experiments.machine import machine
from bitclass.experiments.page import page
from bitclass.experiments.results import Results
from bitclass.experiments.tables import Table, accuracy_table, memory_table, table_1
from bitclass.storage import atomic_write

__all__ = ["write_report"]


def write_report(outcomes: Mapping[Cell, Outcome], out: Path, settings: Mapping[str, str]) -> Path:
    """Write ``report.html`` and its parts into a folder that exists.

    Parameters
    ----------
    outcomes : by cell
    out : folder
    settings : of the run, for the reader

    Returns
    -------
    path of the page
    """
    results = Results(outcomes)
    tables = [accuracy_table(results)] if results.real_data_sets() else []
    tables += [table_1(results, name) for name in results.data_sets]
    tables.append(memory_table(results))
    tables = [table for table in tables if table.rows]
    figures = draw_figures(results)
    claims = check_claims(results)
    problems = _problems(outcomes)
    found = machine()
    facts = {
        **settings,
        "processor": found["processor"],
        "cores": str(found["cores"]),
        "memory": f"{found['memory_bytes'] / 1e9:.0f} GB",
        "kernels": "{simd}, {compiler}".format(**found["bitclass"]),
        "threads": "1, of every method, as LibLinear has",
        "versions": ", ".join(
            f"{name} {number}"
            for name, number in {"python": found["python"], **found["versions"]}.items()
        ),
    }
    for table in tables:
        _write(out / f"{table.name}.csv", _as_csv(table))
    for figure in figures:
        _write(out / f"{figure.name}.png", figure.png)
    every = [
        {"cell": asdict(cell), "outcome": _short(outcome)} for cell, outcome in outcomes.items()
    ]
    content = {
        "machine": found,
        "settings": dict(settings),
        "claims": [_as_json(claim) for claim in claims],
        "cells": every,
    }
    _write(out / "results.json", (json.dumps(content, indent=1, default=str) + "\n").encode())
    path = out / "report.html"
    _write(path, page(facts, claims, tables, figures, problems).encode())
    return path


def _problems(outcomes: Mapping[Cell, Outcome]) -> list[str]:
    return [
        f"{cell}: {outcome.reason}"
        for cell, outcome in outcomes.items()
        if outcome.status != "done"
    ]


def _as_json(claim: Claim) -> dict[str, object]:
    return asdict(claim) | {"verdicts": [asdict(verdict) for verdict in claim.verdicts()]}


def _short(outcome: Outcome) -> dict[str, object]:
    """An outcome without the objective after every bit, which would be most of the file."""
    values = {name: value for name, value in outcome.values.items() if name != "history"}
    return asdict(outcome) | {"values": values}


def _as_csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([entry.text for entry in row] for row in table.rows)
    return text.getvalue().encode()


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)
