"""Test accuracy of the default settings beside what it must reach, and LibLinear: `make floors`.

Only the number of bits and the kernel are set. Every result is kept in `results/floors.json` as it
comes; the tables are written to `results/floors.md` and `docs/accuracy.md`. `--times` measures
training time beside LinearSVC instead, on one thread, both in turn.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier
from bitclass.calibration import N_BINS
from cells import Cells, count, interruptible, write_table
from measures import fit_and_measure
from pages import fill
from real_data import DATA, NAMES, load, present
from timing import measure, threads_of_all

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "accuracy.md"
BITS = (128, 256)
SEEDS = 3
DRAWS = 10


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    data : name of the data set
    kernels : tried; the better is chosen by training rows that refinement holds out
    floors : accuracy to reach, by bits
    liblinear : test accuracy of LibLinear (Crammer-Singer) at its best C, where it is known
    paper_split : whether rows are drawn as in the paper, several times
    """

    data: str
    kernels: tuple[str | None, ...]
    floors: dict[int, float]
    liblinear: float | None
    paper_split: bool = False


CASES = {
    "letters": Case("letter16", ("rbf",), {128: 0.965, 256: 0.972}, 0.783),
    "caltech": Case("caltech101_cnn1280", (None,), {128: 0.935, 256: 0.944}, 0.946),
    "clinc": Case("clinc150_minilm384", (None,), {128: 0.935, 256: 0.948}, 0.951),
    "cifar": Case("cifar10_gist512", (None,), {128: 0.598, 256: 0.605}, 0.595),
    "cifar-rbf": Case("cifar10_gist512", ("rbf",), {128: 0.645, 256: 0.655}, None),
    "tiny": Case("tinyimagenet100_cnn1280", (None,), {128: 0.712, 256: 0.725}, 0.730),
    "cifar-paper": Case(
        "cifar10_gist512", (None, "rbf"), {128: 0.640, 256: 0.650}, 0.583, paper_split=True
    ),
}


@dataclass(frozen=True)
class Race:
    """LinearSVC at its best C, and how many times faster training must be."""

    data: str
    C: float
    max_iter: int
    floor: float


RACES = {
    "clinc": Race("clinc150_minilm384", 1e-2, 1000, 4.0),
    "cifar": Race("cifar10_gist512", 1e-3, 100, 4.0),
    "tiny": Race("tinyimagenet100_cnn1280", 1e-3, 1000, 10.0),
}


def name_of(row: str, n_bits: int, kernel: str | None, seed: int) -> str:
    """Name of one result."""
    return f"{row} | {n_bits} | {kernel or 'linear'} | {seed}"


def run(cells: Cells, chosen: argparse.Namespace) -> None:
    """Compute all results that are asked for and not there yet."""
    there = present(sorted({CASES[row].data for row in chosen.rows}), chosen.data)
    for row in chosen.rows:
        case = CASES[row]
        if case.data not in there:
            continue
        published = load(case.data, chosen.data)
        for seed in range(chosen.draws if case.paper_split else chosen.seeds):
            rows = published.paper_draw(seed) if case.paper_split else published
            for n_bits in BITS:
                for kernel in case.kernels:
                    parameters = {"n_bits": n_bits, "kernel": kernel}
                    key = name_of(row, n_bits, kernel, seed)
                    found = cells.get(key, lambda: fit_and_measure(rows, parameters, seed))
                    accuracy, taken = found["accuracy"], found["seconds"]
                    at = time.strftime("%H:%M:%S")
                    print(f"{at}  {key}: {100 * accuracy:.2f} %, {taken:.1f} s", flush=True)


def results_of(cells: Cells, row: str, n_bits: int, kernel: str | None) -> list[dict[str, Any]]:
    """Results of all seeds."""
    found = (cells.values.get(name_of(row, n_bits, kernel, seed)) for seed in range(DRAWS))
    return [result for result in found if result is not None]


def chosen_kernel(cells: Cells, row: str, n_bits: int) -> str | None:
    """The kernel that is better on the training rows that refinement holds out, by its mean."""

    def held_out(kernel: str | None) -> float:
        reports = [result["refinement"] for result in results_of(cells, row, n_bits, kernel)]
        taken = [
            report["accuracy_after" if report["taken"] else "accuracy_before"]
            for report in reports
            if report is not None
        ]
        return float(np.mean(taken)) if taken else 0.0

    return max(CASES[row].kernels, key=held_out)


def title_of(row: str, kernel: str | None) -> str:
    """What a row of the table is."""
    case = CASES[row]
    split = ", paper's split" if case.paper_split else ""
    return f"{NAMES[case.data]}{split}, {'`rbf`' if kernel else 'linear'}"


def markdown(cells: Cells) -> str:
    """The tables of all results that there are."""
    lines = [
        "# Accuracy beside its floors",
        "",
        f"Test accuracy of the default settings but for `n_bits` and `kernel`, mean of {SEEDS} "
        "seeds ± standard deviation; on the paper's split of CIFAR-10 of as many draws as there "
        "are runs, with the kernel that is better on training rows held out. LibLinear is what "
        "the floors were set beside: LinearSVC (Crammer-Singer) at the C that is best *on the test "
        "rows*, on standardised features; for letters it is linear. The "
        f"expected calibration error has {N_BINS} bins. Made by `make floors`.",
        "",
        "| | bits | runs | accuracy | floor | LibLinear | calibration error | top-5 | rescored |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, case in CASES.items():
        for n_bits in BITS:
            kernel = chosen_kernel(cells, row, n_bits)
            found = results_of(cells, row, n_bits, kernel)
            if not found:
                continue
            mean = {
                field: np.mean([result[field] for result in found])
                for field in ("accuracy", "calibration_error", "top5", "top5_rescored")
            }
            deviation = (
                f" ± {np.std([result['accuracy'] for result in found], ddof=1):.4f}"
                if len(found) > 1
                else ""
            )
            floor = case.floors[n_bits]
            mark = "" if mean["accuracy"] >= floor else " (missed)"
            peer = "" if case.liblinear is None else f"{case.liblinear:.3f}"
            lines.append(
                f"| {title_of(row, kernel)} | {n_bits} | {len(found)} | {mean['accuracy']:.4f}"
                f"{deviation} | {floor:.3f}{mark} | {peer} | {mean['calibration_error']:.3f} | "
                f"{mean['top5']:.4f} | {mean['top5_rescored']:.4f} |"
            )
    races = {
        name: cells.values[f"time | {name}"] for name in RACES if f"time | {name}" in cells.values
    }
    if races:
        lines += [
            "",
            "Training time on one thread, LinearSVC (Crammer-Singer) and the default settings in "
            "turn, medians. LinearSVC is as it comes; at LibLinear's own tolerance, which is a "
            "thousand times larger, it is several times faster (`make reproduce`).",
            "",
            "| | LinearSVC | its accuracy | 128 bits | 256 bits | ratio at 128 | at 256 | floor |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, found in races.items():
            race = RACES[name]
            ours = {n_bits: found["ours"][str(n_bits)] for n_bits in BITS}
            ratios = " | ".join(f"{found['peer'] / ours[n_bits]:.1f}" for n_bits in BITS)
            lines.append(
                f"| {NAMES[race.data]}, C = {race.C:g}, at most {race.max_iter} iterations | "
                f"{found['peer']:.1f} s | {found['accuracy']:.4f} | {ours[128]:.2f} s | "
                f"{ours[256]:.2f} s | {ratios} | {race.floor:g} |"
            )
    return "\n".join(lines) + "\n"


def timed(race: Race, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of training, LinearSVC and ours in turn on one thread, standardised rows for both."""
    rows = load(race.data, folder)
    scaler = StandardScaler().fit(rows.X)
    X = scaler.transform(rows.X)
    svm = LinearSVC(C=race.C, multi_class="crammer_singer", max_iter=race.max_iter, random_state=0)
    X_peer = X.astype(np.float64)  # what it would convert to
    work = {"peer": lambda: svm.fit(X_peer, rows.y)}
    for n_bits in BITS:
        ours = BinaryCodeClassifier(n_bits, random_state=0)
        work[str(n_bits)] = lambda ours=ours: ours.fit(X, rows.y)
    with threads_of_all(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        seconds = measure(work, rounds)
    accuracy = float(svm.score(scaler.transform(rows.X_test), rows.y_test))
    return {"peer": seconds.pop("peer"), "ours": seconds, "accuracy": accuracy, "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the .npz files")
    parser.add_argument("--rows", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=count, default=SEEDS, help="how many")
    parser.add_argument("--draws", type=count, default=DRAWS, help="draws of the paper's split")
    parser.add_argument("--times", action="store_true", help="training time, not accuracy")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of the times")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    cells = Cells(chosen.out / "floors.json")
    with interruptible():
        if chosen.times:
            for name in chosen.rows:
                if name not in RACES:
                    continue
                present([RACES[name].data], chosen.data)
                cells.values[f"time | {name}"] = timed(RACES[name], chosen.data, chosen.rounds)
                cells.save()
                print(f"{name}: {cells.values[f'time | {name}']}", flush=True)
        else:
            run(cells, chosen)
    text = markdown(cells)
    write_table(chosen.out / "floors.md", text)
    if chosen.out == RESULTS:  # results that go elsewhere leave the page as it is
        fill(PAGE, "floors", text.partition("\n")[2])


if __name__ == "__main__":
    main()
