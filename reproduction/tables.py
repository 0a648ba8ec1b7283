"""The paper's tables, with the published numbers next to ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from reproduction.datasets import DATASETS
from reproduction.methods import METHODS, OTHER_STARTS, PAPER
from reproduction.paper import PAPER_COLUMN, TABLE_1, TABLE_2
from reproduction.plan import TABLE_BITS
from reproduction.results import Results

__all__ = [
    "Table",
    "accuracy_table",
    "memory_table",
    "seconds_text",
    "starts_table",
    "table_1",
]

MB = 1 << 20


@dataclass
class Table:
    """A table of the report: title, note, column names, and rows of text."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


def seconds_text(seconds: float) -> str:
    """Format seconds in a suitable unit.

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
    """Accuracy, training time and test time of all methods on a dataset."""
    shape, column = results.shape(data), PAPER_COLUMN.get(data)
    table = Table(f"Table 1: {DATASETS[data].title}", "", ["method"])
    if shape is not None:
        table.note = f"{shape[0]:,} training rows, {shape[1]:,} features, {shape[2]:,} classes."
    if column is not None:
        table.note += f" *Paper* is its {column}."
    fields = {"train_seconds": "training", "test_seconds": "test, per row"}
    if not DATASETS[data].synthetic:
        fields = {"accuracy": "accuracy, %"} | fields
    for head in fields.values():
        table.columns += [head, "paper"] if column is not None else [head]
    table.columns.append("C")
    for method in METHODS.values():
        if not results.of(method.name, data):
            continue
        row = [method.title]
        for name in fields:
            row.append(_measured(results, method.name, data, name))
            if column is not None:
                printed = TABLE_1[column].get(method.name)
                number = None if printed is None else getattr(printed, name)
                in_percent = name == "accuracy"
                row.append(
                    "" if number is None else f"{number}" if in_percent else seconds_text(number)
                )
        chosen = sorted(set(results.values(method.name, data, "C")))
        cut = "" if all(results.values(method.name, data, "converged")) else " (1,000 iterations)"
        row.append(", ".join(f"{C:g}" for C in chosen) + cut)
        table.rows.append(row)
    return table


def accuracy_table(results: Results) -> Table:
    """Accuracy of all methods on all real datasets, the paper's CIFAR-10 last."""
    names = results.real_datasets
    columns = ["method", *(DATASETS[name].title for name in names)]
    table = Table(f"Accuracy at {TABLE_BITS} bits, %", "", columns)
    with_paper = "cifar10-paper" in names
    if with_paper:
        columns.append("CIFAR-10, paper")
    for method in METHODS.values():
        if any(results.of(method.name, name) for name in names):
            row = [_measured(results, method.name, name, "accuracy") for name in names]
            if with_paper:
                printed = TABLE_1["CIFAR-10"].get(method.name)
                row.append("" if printed is None else f"{printed.accuracy}")
            table.rows.append([method.title, *row])
    return table


def starts_table(results: Results) -> Table:
    """The paper's two losses from all starting codes, and what that shows."""
    starts = {"projections of samples": PAPER, **OTHER_STARTS}
    table = Table(
        f"Starting codes: accuracy at {TABLE_BITS} bits, exponential / hinge loss, %",
        "",
        ["dataset", *starts],
    )
    differences = {start: [] for start in starts}  # type: dict[str, list[float]]
    for data in results.real_datasets:
        row = []
        for start, (exponential, hinge) in starts.items():
            pair = [results.accuracy(name, data) for name in (exponential, hinge)]
            row.append(" / ".join("" if one is None else f"{one.mean:.1f}" for one in pair))
            if pair[0] is not None and pair[1] is not None:
                differences[start].append(pair[0].mean - pair[1].mean)
        if any(text != " / " for text in row):
            table.rows.append([DATASETS[data].title, *row])
    parts = [
        f"{start}: higher with the exponential loss on "
        f"{sum(one > 0.05 for one in found)}, with the hinge loss on "
        f"{sum(one < -0.05 for one in found)} of {len(found)} datasets"
        for start, found in differences.items()
        if found
    ]
    table.note = (
        "The paper does not say which codes it starts from. One code per class is a fixed point of "
        "both losses if classes have equal sizes, so that both learn the same model; codes of "
        "samples are not. The claims are judged by projections. Accuracy from "
        f"{'; '.join(parts)}."
    )
    return table


def memory_table(results: Results) -> Table:
    """Memory of training features and of models, for the SVM and the paper's method."""
    table = Table(
        "Table 2: memory, MB",
        "Training features: float64 rows, as required by LibLinear, and packed codes. Models: "
        f"float64 coefficients; float32 projection and packed weights at {TABLE_BITS} bits. Peak: "
        "memory of the process that trained the paper's method with hinge loss, including "
        "libraries. 1 MB is 2^20 bytes.",
        [
            "dataset",
            "features / codes",
            "ratio",
            "paper",
            "model, SVM / paper's method",
            "ratio",
            "paper",
            "peak",
        ],
    )
    for name in results.datasets:
        shape, ours = results.shape(name), results.mean("paper-hinge", name, "model_bytes")
        if shape is None or ours is None:
            continue
        n, d, n_classes = shape
        svm = results.mean("svm-ova", name, "model_bytes") or 8.0 * (d + 1) * n_classes
        row = [DATASETS[name].title]
        for first, large, small in ((0, 8.0 * n * d, n * TABLE_BITS / 8), (2, svm, ours)):
            row += [f"{large / MB:,.2f} / {small / MB:,.2f}", f"{large / small:,.1f}"]
            printed = TABLE_2.get(name)
            row.append("" if printed is None else f"{printed[first]} / {printed[first + 1]}")
        peak = results.mean("paper-hinge", name, "peak_bytes")
        row.append("" if peak is None else f"{peak / MB:,.0f}")
        table.rows.append(row)
    return table


def _measured(results: Results, method: str, data: str, name: str) -> str:
    outcomes = results.of(method, data)
    values = results.values(method, data, name)
    some = f" ({len(values)} of {len(outcomes)} seeds)" if len(values) < len(outcomes) else ""
    if name == "accuracy" and (accuracy := results.accuracy(method, data)) is not None:
        return f"{accuracy.mean:.1f} ± {accuracy.spread:.1f}{some}"
    if name != "accuracy" and (time := results.seconds(method, data, name)) is not None:
        return f"{seconds_text(time.mean)} ± {time.spread / time.mean:.0%}{some}"
    late = [outcome for outcome in outcomes if outcome["status"] == "timeout"]
    learned_for = [outcome["learned_for"] for outcome in late if outcome.get("learned_for")]
    if name == "train_seconds" and learned_for:
        return f"over {seconds_text(max(learned_for))}"
    if late:
        return f"not done in {late[0]['limit']:g} s"
    return "failed" if any(outcome["status"] == "failed" for outcome in outcomes) else ""
