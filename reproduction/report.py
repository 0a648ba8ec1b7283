"""The report in Markdown: a one-line summary, figures, claims and tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import bitclass
from reproduction.claims import Claim, Finding, check_claims, summary
from reproduction.figures import draw_figures, history_dataset
from reproduction.plan import Cell
from reproduction.results import Results, read_results, write_results
from reproduction.runner import Outcome, write_whole
from reproduction.tables import Table, accuracy_table, memory_table, starts_table, table_1

__all__ = ["machine", "merge_results", "save_run", "write_report"]

_INTRODUCTION = """\
## Method

The tables, figures and claims of *Learning Binary Codes and Binary Weights for Efficient
Classification* (Shen, Mu, Liu, Yang, Shen). Every method runs on one thread, and times are CPU
times. Features are standardised on the training rows. The SVMs are those of LibLinear with the best
C of 1e-3 to 1e3 on held-out training rows, timed with that C (on synthetic rows with C = 1e-3); the
hashing methods are followed by the same SVM. The *paper's method* is `PaperClassifier` and starts
from signs of random projections of the samples, unless other starting codes are named. *bitclass
defaults* is `BinaryCodeClassifier` with only the code length set. Both encode test rows in
eight-bit integers.
"""
_UNCERTAINTY = """\
± is one standard deviation. For accuracies it includes seeds, splits and the finite test set; for
times it is over seeds and at least 10 %, and a ratio of times has a range in brackets. A difference
within its ±, or a ratio whose range includes the threshold, is *not decided*, and so is a
comparison that a missing result could change. A claim *holds* if no dataset contradicts it and at
least half of them confirm it.
"""


def machine() -> dict[str, str]:
    """Processor, cores, memory and versions of this machine."""
    config = bitclass.get_config()
    packages = ("numpy", "scipy", "scikit-learn", "bitclass")
    versions = [f"python {platform.python_version()}", *(f"{p} {version(p)}" for p in packages)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor() or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 1e9:.0f} GB",
        "kernels": f"{config['simd']}, {config['compiler']}",
        "versions": ", ".join(versions),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")


def save_run(outcomes: Mapping[Cell, Outcome], settings: Mapping[str, str], folder: Path) -> Path:
    """Write the results of a run and its report; returns the path of the report."""
    results = Results(outcomes)
    data = history_dataset(results)
    if data is not None:
        results.history = {data: results.values("paper-exponential", data, "history")}
    write_results(results, {**settings, **machine()}, folder)
    return write_report(folder)


def merge_results(folder: Path, parts: Sequence[Path]) -> None:
    """Write the results of several folders into one; of a cell in several, the last is kept."""
    found = [read_results(part) for part in parts]
    results = Results({cell: one for part, _ in found for cell, one in part.outcomes.items()})
    histories = {data: seeds for part, _ in found for data, seeds in part.history.items()}
    data = history_dataset(results)
    if data in histories:
        results.history = {data: histories[data]}
    names = dict.fromkeys(name for _, run in found for name in run)
    runs = {name: dict.fromkeys(run[name] for _, run in found if name in run) for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results, {name: "; ".join(values) for name, values in runs.items()}, folder)


def write_report(folder: Path) -> Path:
    """Write ``report.md`` and its figures from the results in a folder; returns its path."""
    results, run = read_results(folder)
    figures = draw_figures(results, folder)
    claims = check_claims(results)
    tables = [starts_table(results), accuracy_table(results)] if results.real_datasets else []
    tables += [memory_table(results), *(table_1(results, name) for name in results.datasets)]
    parts = [
        "# Reproduction of the paper's evaluation\n",
        f"**The paper's method: {summary(claims, of_paper=True)}. "
        f"bitclass with its defaults: {summary(claims, of_paper=False)}.**\n",
        *(
            f"![{caption.split('**')[1]}]({file})\n\n{caption}\n"
            for file, caption in figures.items()
        ),
        _INTRODUCTION,
        "## Claims\n",
        _UNCERTAINTY,
        _overview(claims),
        *(_details(number, claim) for number, claim in enumerate(claims, 1) if claim.findings),
        "## Tables\n",
        *(_table(table) for table in tables if table.rows),
        _problems(results),
        "## Machine and settings\n",
        "".join(f"- {name}: {value}\n" for name, value in run.items()),
    ]
    path = folder / "report.md"
    write_whole(path, "\n".join(part for part in parts if part))
    return path


def _overview(claims: Sequence[Claim]) -> str:
    table = Table("", "", ["", "claim", "the paper", "paper's method", "bitclass defaults"])
    for number, claim in enumerate(claims, 1):
        verdicts = [claim.verdict(of_paper) for of_paper in (True, False)]
        shown = ["" if v is None else f"**{v[0]}** ({v[1]})" for v in verdicts]
        if not claim.findings:
            shown[0] = "not measured in this run"
        table.rows.append([str(number), claim.text, claim.paper, *shown])
    return _grid(table)


def _details(number: int, claim: Claim) -> str:
    words = {True: "holds", False: "does not hold", None: "not decided"}

    def row(finding: Finding) -> list[str]:
        return [finding.where, finding.text, words[finding.holds]]

    table = Table("", "", ["dataset", "measured", "verdict"], list(map(row, claim.findings)))
    return (
        f"<details><summary>{number}. {_escaped(claim.text)}</summary>\n\n"
        f"{_grid(table)}\n</details>\n"
    )


def _table(table: Table) -> str:
    note = f"{table.note.strip()}\n\n" if table.note else ""
    return f"### {table.title}\n\n{note}{_grid(table)}"


def _grid(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")


def _problems(results: Results) -> str:
    lines = [
        f"- {cell}: {_escaped(outcome.get('reason', ''))}\n"
        for cell, outcome in results.outcomes.items()
        if outcome["status"] != "done"
    ]
    return "## Not measured\n\n" + "".join(lines) if lines else ""
