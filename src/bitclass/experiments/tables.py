"""The paper's tables, with its own numbers beside ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS, Method
from bitclass.experiments.paper import PAPER_COLUMN, TABLE_1, TABLE_2, PaperRow
from bitclass.experiments.plan import TABLE_BITS
from bitclass.experiments.results import Results, Statistic

__all__ = ["Entry", "Table", "accuracy_table", "memory_table", "seconds_text", "table_1"]

MB = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A place in a table: what is shown, what it is sorted by, and whether it is the paper's."""

    text: str
    value: float | None = None
    of_paper: bool = False


@dataclass
class Table:
    """A table of the report.

    Attributes
    ----------
    name : str, of its CSV file
    title, note : str
    columns : names
    rows : lists of `Entry`, each as long as `columns`
    """

    name: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[Entry]] = field(default_factory=list)


def seconds_text(seconds: float) -> str:
    """Seconds, in a unit that suits them.

    Examples
    --------
    >>> seconds_text(71.23), seconds_text(0.0123), seconds_text(2.1e-6)
    ('71.2 s', '12.3 ms', '2.1 µs')
    """
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def table_1(results: Results, data: str) -> Table:
    """Accuracy, training time and test time of all methods on a data set."""
    title = DATA_SETS[data].title
    shape = results.shape(data)
    column = PAPER_COLUMN.get(data)
    table = Table(f"table1-{data}", f"Table 1: {title}", "", ["method"])
    if shape is not None and shape[0]:
        table.note = f"{shape[0]:,} rows, {shape[1]:,} features, {shape[2]:,} classes. "
    if column is not None:
        table.note += f"The paper's numbers are those of its {column}. "
    with_accuracy = not DATA_SETS[data].synthetic
    fields = [("accuracy", "accuracy, %")] if with_accuracy else []
    fields += [("train_seconds", "training"), ("test_seconds", "test, a row")]
    for _, head in fields:
        table.columns += [head, f"{head}: the paper"] if column is not None else [head]
    table.columns += ["C"]
    for method in METHODS.values():
        if not results.of(method.name, data):
            continue
        row = [Entry(_marked(method))]
        for name, _ in fields:
            row.append(_measured(results, method.name, data, name))
            if column is not None:
                row.append(_of_paper(TABLE_1[column].get(method.name), name))
        found = results.values(method.name, data, "C")
        chosen = ", ".join(f"{C:g}" for C in sorted(set(found)))
        if not all(results.values(method.name, data, "converged")):
            chosen += " (cut at 1,000 iterations)"
        row.append(Entry(chosen))
        table.rows.append(row)
    return _without_empty_columns(table)


def _without_empty_columns(table: Table) -> Table:
    used = [j for j in range(len(table.columns)) if any(row[j].text for row in table.rows)]
    table.columns = [table.columns[j] for j in used]
    table.rows = [[row[j] for j in used] for row in table.rows]
    return table


def accuracy_table(results: Results) -> Table:
    """Accuracies on all real data sets, and the paper's CIFAR-10 beside them."""
    names = results.real_data_sets()
    table = Table(
        "accuracy",
        f"Accuracy at {TABLE_BITS} bits on all data sets, %",
        "Mean ± standard deviation over seeds and splits. + marks what goes beyond the paper. "
        "RBF: on 1,000 radial basis functions of the features.",
        ["method", *(DATA_SETS[name].title for name in names)],
    )
    with_paper = "cifar10-paper" in names
    if with_paper:
        table.columns.append("CIFAR-10: the paper")
    for method in METHODS.values():
        if not any(results.of(method.name, name) for name in names):
            continue
        row = [Entry(_marked(method))]
        row += [_measured(results, method.name, name, "accuracy") for name in names]
        if with_paper:
            row.append(_of_paper(TABLE_1["CIFAR-10"].get(method.name), "accuracy"))
        table.rows.append(row)
    return table


def memory_table(results: Results) -> Table:
    """Memory of training features and of models, SVM beside ours."""
    table = Table(
        "table2",
        "Table 2: memory, MB",
        "MB are 2^20 bytes. Training features: float64 rows as LibLinear takes them, beside packed "
        "codes. Models: float64 coefficients, beside a float32 projection and packed weights at "
        f"{TABLE_BITS} bits, as measured. Largest: the most that the process of Ours-Hinge had, "
        "rows and libraries included.",
        [
            "data",
            "rows: SVM",
            "rows: ours",
            "ratio",
            "model: SVM",
            "model: ours",
            "ratio",
            "largest",
        ],
    )
    with_paper = any(name in TABLE_2 for name in results.data_sets)
    if with_paper:
        table.columns += ["the paper: rows SVM / ours", "the paper: model SVM / ours"]
    for name in results.data_sets:
        shape, ours = results.shape(name), results.mean("ours-hinge", name, "model_bytes")
        if shape is None or ours is None:
            continue
        n, d, n_classes = shape
        svm = results.mean("ova-svm", name, "model_bytes") or 8.0 * (d + 1) * n_classes
        row = [Entry(DATA_SETS[name].title)]
        row += _pair(8.0 * n * d, n * TABLE_BITS / 8) if n else [Entry("")] * 3
        row += _pair(svm, ours)
        peak = results.mean("ours-hinge", name, "peak_bytes")
        row.append(Entry("") if peak is None else Entry(f"{peak / MB:,.0f}", peak))
        if with_paper:
            printed = TABLE_2.get(name)
            for first in (0, 2):
                text = ""
                if printed is not None:
                    text = f"{printed[first]:,.2f} / {printed[first + 1]:,.2f}"
                row.append(Entry(text, None, of_paper=True))
        table.rows.append(row)
    return table


def _pair(theirs: float, ours: float) -> list[Entry]:
    ratio = theirs / ours
    return [
        Entry(f"{theirs / MB:,.2f}", theirs),
        Entry(f"{ours / MB:,.2f}", ours),
        Entry(f"{ratio:,.1f}", ratio),
    ]


def _marked(method: Method) -> str:
    return f"{method.title} +" if method.beyond_paper else method.title


def _measured(results: Results, method: str, data: str, name: str) -> Entry:
    found = results.statistic(method, data, name)
    if found is not None:
        n_seeds = len(results.of(method, data))
        some = f" ({found.n} of {n_seeds} seeds)" if found.n < n_seeds else ""
        return Entry(_with_spread(found, name) + some, found.mean)
    limit = results.limit(method, data)
    if limit is not None:
        # The limit is for loading, choosing C, learning and predicting together.
        learned_for = max(results.values(method, data, "learned_for"), default=None)
        if name == "train_seconds" and learned_for is not None:
            return Entry(f"over {seconds_text(learned_for)}", learned_for)
        return Entry(f"not done in {limit:g} s")
    failed = [outcome.reason for outcome in results.of(method, data)]
    return Entry(f"failed: {failed[0]}" if failed and failed[0] else "")


def _with_spread(found: Statistic, name: str) -> str:
    if name == "accuracy":
        spread = f" ± {100 * found.spread:.1f}" if found.n > 1 else ""
        return f"{100 * found.mean:.1f}{spread}"
    text = seconds_text(found.mean)
    if found.n > 1 and found.mean > 0:
        text += f" ± {100 * found.spread / found.mean:.0f} %"
    return text


def _of_paper(row: PaperRow | None, name: str) -> Entry:
    if row is None:
        return Entry("", None, of_paper=True)
    if name == "accuracy":
        return Entry(f"{row.accuracy:.1f}", row.accuracy / 100, of_paper=True)
    seconds = row.train_seconds if name == "train_seconds" else row.test_seconds
    return Entry(seconds_text(seconds), seconds, of_paper=True)
