"""500 random problems, compared with LDA and ridge: `make random-problems`.

50 to 5,000 rows, 1 to 300 features and 2 to 200 classes; correlated, heavy-tailed, counted or in
different units; even or uneven classes; means that differ in all directions or in a few. The
number of a problem determines its rows. Lists the problems in which bitclass is more than 3 points
below the better of LDA and ridge on fresh rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from harness import BUILD
from linear_models import Problem, metrics
from regimes import bitclass_estimator

CACHE = BUILD / "regimes" / "random_problems.json"
LIMIT = 3.0
N_TEST = 5000
KINDS = ("plain", "correlated", "heavy-tailed", "counts")


def random_problem(number: int) -> tuple[Problem, str]:
    """Rows of a problem, and what it is in words."""
    rng = np.random.default_rng([25, number])
    n = int(np.exp(rng.uniform(np.log(50), np.log(5000))))
    d = int(np.exp(rng.uniform(np.log(1), np.log(301))))
    n_classes = int(np.exp(rng.uniform(np.log(2), np.log(min(200, n // 5) + 1))))
    kind = KINDS[number % len(KINDS)]
    uneven = rng.random() < 0.4
    n_directions = d if rng.random() < 0.5 else int(rng.integers(1, min(d, 5) + 1))
    in_units = rng.random() < 0.3  # features of very different scales

    shares = np.arange(1, n_classes + 1.0) ** -rng.uniform(0.5, 1.5)
    if not uneven:
        shares = np.ones(n_classes)
    shares = rng.permutation(shares) / shares.sum()
    counts = np.maximum(2, rng.multinomial(n, shares))
    y = rng.permutation(np.repeat(np.arange(n_classes), counts))
    y_test = rng.choice(n_classes, N_TEST, p=counts / counts.sum())
    # Means as far apart as many errors, or few, require in so many directions.
    distance = rng.uniform(2.0, 8.0) * max(1.0, n_classes ** (1 / n_directions) / 3)
    basis = np.linalg.qr(rng.standard_normal((d, n_directions)))[0]
    places = rng.standard_normal((n_classes, n_directions)) / np.sqrt(2 * n_directions)
    means = distance * places @ basis.T
    mixing = None
    if kind == "correlated":
        scales = np.exp(-rng.uniform(1, 4) * np.arange(d) / d)
        mixing = np.linalg.qr(rng.standard_normal((d, d)))[0] * scales
        mixing = mixing @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    freedom = rng.uniform(2.0, 5.0)
    rate = np.exp(rng.normal(0.5, 1.0, d))
    units = np.exp(rng.normal(0, 3, d)) if in_units and kind != "counts" else np.ones(d)

    def rows(y: NDArray[Any]) -> NDArray[np.float32]:
        if kind == "counts":
            return rng.poisson(rate * np.exp(np.clip(means[y], -6, 3))).astype(np.float32)
        if kind == "heavy-tailed":
            noise = rng.standard_t(freedom, (len(y), d)) / np.sqrt(freedom / (freedom - 1.9))
        else:
            noise = rng.standard_normal((len(y), d))
        X = means[y] + noise
        if mixing is not None:
            X = X @ mixing
        return (X * units).astype(np.float32)

    words = (
        f"{kind}, {len(y)} rows, {d} features, {n_classes} classes"
        f"{', uneven' if uneven else ''}, {n_directions} directions{', units' if in_units else ''}"
    )
    return Problem(rows(y), y, rows(y_test), y_test), words


def peers(problem: Problem) -> dict[str, float]:
    """Accuracy of LDA, LDA with shrinkage, and ridge regression on standardised rows."""
    X, y, X_test, y_test = problem
    models = {
        "LDA": LinearDiscriminantAnalysis(),
        "LDA, shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "ridge": make_pipeline(StandardScaler(), RidgeClassifier()),
    }
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in models.items():
            found[name] = float(np.mean(model.fit(X, y).predict(X_test) == y_test))
    return found


def main() -> None:
    """Compare on some of the problems and list those that are lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", default="0:500", help="such as 0:100, or 7 for one")
    parser.add_argument("--bits", type=int, default=256)
    parser.add_argument("--cache", type=Path, default=CACHE, help="results of the peers")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--all", action="store_true", help="print all problems")
    options = parser.parse_args()
    first, _, last = options.problems.partition(":")
    kept = json.loads(options.cache.read_text()) if options.cache.exists() else {}
    known = len(kept)
    results = []
    start = time.process_time()
    with threadpool_limits(1):
        for number in range(int(first), int(last or int(first) + 1)):
            result = compare(number, options.bits, kept)
            results.append(result)
            if options.all or result["difference"] < -LIMIT:
                print(text_of(result), flush=True)
    if len(kept) > known:
        options.cache.parent.mkdir(parents=True, exist_ok=True)
        options.cache.write_text(json.dumps(kept))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    error = np.mean([result["ece"] for result in results])
    differences = np.array([result["difference"] for result in results])
    print(
        f"{(differences < -LIMIT).sum()} of {len(results)} problems lost by more than {LIMIT:g} "
        f"points; mean difference {differences.mean():+.2f}, "
        f"median {np.median(differences):+.2f}; mean ECE {error:.3f}; "
        f"{time.process_time() - start:.0f} CPU seconds"
    )


def compare(number: int, bits: int, kept: dict[str, Any]) -> dict[str, Any]:
    """Ours and the better peer on one problem, in % of the test rows; peers from `kept`."""
    problem, words = random_problem(number)
    if str(number) not in kept:
        kept[str(number)] = peers(problem)
    name, best = max(kept[str(number)].items(), key=lambda item: item[1])
    start = time.process_time()
    model = bitclass_estimator(bits)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(problem.X, problem.y)
        found = metrics(
            problem.y_test, model.predict(problem.X_test), model.predict_proba(problem.X_test)
        )
    seconds = time.process_time() - start
    ours, best = 100 * found.pop("accuracy"), 100 * best
    common = {"number": number, "words": words, "peer": name}
    return common | {"ours": ours, "best": best, "difference": ours - best, "cpu": seconds} | found


def text_of(result: dict[str, Any]) -> str:
    """A line for a problem."""
    return (
        f"{result['number']:4} {result['ours']:5.1f} {result['best']:5.1f} "
        f"{result['difference']:+6.1f}  ECE {result['ece']:.3f}  {result['cpu']:4.1f} s  "
        f"{result['words']}; {result['peer']}"
    )


if __name__ == "__main__":
    main()
