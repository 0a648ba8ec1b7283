"""Where bitclass is good, and where to use something else: `make regimes`.

Few rows per class, long tails, weights, classes on a line or a grid, new classes, and wide rows,
on real and generated data, compared with real-valued linear models in the same run. The results
of these are kept in `build/regimes`. Writes `results/regimes.md` and `docs/figures/regimes.svg`.

To try another learner, call `evaluate` with a function that creates it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits

from harness import BUILD, DATA, markdown, write_page
from linear_models import EVEN, PLAIN, Problem, measure, metrics

CACHE = BUILD / "regimes"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "regimes.svg"
NOTE = (
    "Where bitclass is good, and where to use something else: accuracy on test rows in % (mean "
    "recall where marked), the best linear model (of logistic regression, LinearSVC, LDA, ridge "
    "regression and the cosine to the class mean, their settings chosen on the test rows), log "
    "loss, expected calibration error, and CPU seconds of training and prediction on one thread. "
    "Means over seeds. Measured by `make regimes`."
)
Result = dict[str, Any]
Fit = Callable[[Any, Problem], None]


def fit_all(estimator: Any, problem: Problem) -> None:
    estimator.fit(problem.X, problem.y)


@dataclass(frozen=True)
class Regime:
    """A way to draw rows, and what to do with them.

    Attributes
    ----------
    name, title : str
    make : callable, rows for a seed
    settings : parameters of the estimator
    measure : "accuracy" or "recall", what methods are compared by
    even : bool, whether peers get balanced weights or uniform priors
    in_units : bool, whether features keep their own units in the peers
    compared : bool, whether peers are run; those that get weights have none
    fit : callable, fits an estimator to the rows
    n_seeds : int
    data : str
        The regimes with the same `data` have the same rows, and share the results of the peers.
    """

    name: str
    title: str
    make: Callable[[int], Problem]
    settings: Mapping[str, Any] = field(default_factory=dict)
    measure: str = "accuracy"
    even: bool = False
    in_units: bool = True
    compared: bool = True
    fit: Fit = fit_all
    n_seeds: int = 1
    data: str = ""

    def __post_init__(self) -> None:
        if not self.data:  # a copy with another name keeps it
            object.__setattr__(self, "data", self.name)

    @property
    def heading(self) -> str:
        """The title, with what is measured if that is not accuracy."""
        return self.title + (", mean recall" if self.measure == "recall" else "")

    def rows(self, seed: int) -> Problem:
        """Rows for a seed, the last ones kept in memory."""
        return _rows(self.data, self.make, seed)


@lru_cache(maxsize=1)
def _rows(data: str, make: Callable[[int], Problem], seed: int) -> Problem:
    return make(seed)


# Rows of real data


class MissingError(Exception):
    """A dataset is not there."""


@lru_cache(maxsize=2)
def _real(name: str) -> Problem:
    path = DATA / f"{name}.npz"
    if not path.exists():
        raise MissingError(f"{path.name} is not in {DATA}")
    with np.load(path, allow_pickle=False) as arrays:
        X, X_test = (arrays[key].astype(np.float32) for key in ("X_train", "X_test"))
        labels, y = np.unique(arrays["y_train"], return_inverse=True)
        return Problem(X, y, X_test, np.searchsorted(labels, arrays["y_test"]))


def _chosen(rows: Problem, counts: NDArray[Any], rng: np.random.Generator) -> Problem:
    """At most `counts[c]` training rows of each class c, in random order."""
    order = rng.permutation(len(rows.y))
    order = order[np.argsort(rows.y[order], kind="stable")]
    sizes = np.bincount(rows.y)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = rng.permutation(order[rank < counts[rows.y[order]]])
    return rows._replace(X=rows.X[order], y=rows.y[order])


def few(name: str, per_class: int, seed: int, n_classes: int | None = None) -> Problem:
    """A few rows of each class, or of some classes."""
    rng = np.random.default_rng(seed)
    rows = _real(name)
    total = rows.y.max() + 1
    if n_classes is not None:
        some = np.sort(rng.permutation(total)[:n_classes])
        number = np.full(total, -1)
        number[some] = np.arange(n_classes)
        train, test = number[rows.y] >= 0, number[rows.y_test] >= 0
        rows = Problem(
            rows.X[train], number[rows.y[train]], rows.X_test[test], number[rows.y_test[test]]
        )
    return _chosen(rows, np.full(rows.y.max() + 1, per_class), rng)


def long_tail(name: str, seed: int) -> Problem:
    """The class of rank k has 1/k of the rows of the largest, and at least 2; even test rows.

    Classes are ranked by their size, those of equal size at random.
    """
    rng = np.random.default_rng(seed)
    rows = _real(name)
    sizes = np.bincount(rows.y)
    rank = np.empty(len(sizes))
    rank[np.lexsort((rng.random(len(sizes)), -sizes))] = np.arange(1, len(sizes) + 1)
    train = _chosen(rows, np.maximum(2, np.round(sizes.max() / rank)), rng)
    tested = np.bincount(rows.y_test)
    swapped = Problem(rows.X_test, rows.y_test, rows.X, rows.y)
    test = _chosen(swapped, np.full(len(sizes), 2 * tested.min()), rng)
    return train._replace(X_test=test.X, y_test=test.y)


def imbalanced(name: str, ratio: float, seed: int) -> Problem:
    """The sizes of the classes fall geometrically, by `ratio` in all."""
    rng = np.random.default_rng(seed)
    rows = _real(name)
    sizes = np.bincount(rows.y)
    rank = rng.permutation(len(sizes)) / (len(sizes) - 1)
    return _chosen(rows, np.maximum(1, np.round(sizes.max() * ratio**-rank)), rng)


def some_rows(name: str, n: int, seed: int) -> Problem:
    rows = _real(name)
    order = np.random.default_rng(seed).permutation(len(rows.y))[:n]
    return rows._replace(X=rows.X[order], y=rows.y[order])


def letters(hint: bool, seed: int) -> Problem:
    """Letters, perhaps with a feature that tells every second letter from the others."""
    rows = _real("letter16")
    if not hint:
        return rows
    X = np.column_stack([rows.X, rows.y % 2]).astype(np.float32)
    return rows._replace(
        X=X, X_test=np.column_stack([rows.X_test, rows.y_test % 2]).astype(np.float32)
    )


# Texts


@lru_cache(maxsize=1)
def _sentences() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    path = DATA / "clinc150_text.tsv.gz"
    if not path.exists():
        raise MissingError(f"{path.name} is not in {DATA}")
    with gzip.open(path, "rt") as lines:
        table = [line.rstrip("\n").split("\t") for line in lines]
    parts = [[row for row in table if (row[0] == "train") == train] for train in (True, False)]
    labels = np.unique([row[1] for row in parts[0]])
    texts, y, test, y_test = (
        column
        for part in parts
        for column in (
            np.array([row[2] for row in part], dtype=object),
            np.searchsorted(labels, [row[1] for row in part]),
        )
    )
    return texts, y, test, y_test


def _hashed(texts: Sequence[str], y: Any, test: Sequence[str], y_test: Any) -> Problem:
    """Rows of n-grams, without the columns that no training text has."""
    from bitclass.text import csr_rows, fit_ngrams

    features = fit_ngrams([texts])
    return Problem(csr_rows(features, texts), y, csr_rows(features, test), y_test)


def texts(per_class: int, seed: int) -> Problem:
    X, y, X_test, y_test = _sentences()
    rows = _chosen(
        Problem(X, y, X_test, y_test),
        np.full(y.max() + 1, per_class),
        np.random.default_rng(seed),
    )
    return _hashed(rows.X, rows.y, rows.X_test, rows.y_test)


def long_texts(n_joined: int, seed: int) -> Problem:
    """Joined sentences, a quarter of them of the intent that is the label, the rest of any."""
    rng = np.random.default_rng(seed)
    sentences, y, test, y_test = _sentences()

    def join(sentences: NDArray[Any], y: NDArray[Any], n_texts: int) -> tuple[list[str], Any]:
        of_class = [np.flatnonzero(y == c) for c in range(y.max() + 1)]
        labels = np.repeat(np.arange(len(of_class)), n_texts)
        joined = []
        for label in labels:
            picked = rng.integers(len(y), size=n_joined)
            own = rng.random(n_joined) < 0.25
            picked[own] = rng.choice(of_class[label], own.sum())
            joined.append(" ".join(sentences[picked]))
        return joined, labels

    return _hashed(*join(sentences, y, 10), *join(test, y_test, 10))


def tfidf(n_classes: int, per_class: int, seed: int) -> Problem:
    """Rows of the words and pairs of words of some intents."""
    rng = np.random.default_rng(seed)
    X, y, X_test, y_test = _sentences()
    train, test = y < n_classes, y_test < n_classes
    rows = Problem(X[train], y[train], X_test[test], y_test[test])
    rows = _chosen(rows, np.full(n_classes, per_class), rng)
    extract = TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32)
    X = extract.fit_transform(rows.X)
    return rows._replace(X=X.tocsr(), X_test=extract.transform(rows.X_test).tocsr())


def one_hot(seed: int) -> Problem:
    """Two variables of 1,500 values; the first one tells the class. It was seen once if tested."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    n_values, n_classes = 1500, 10
    label = rng.integers(n_classes, size=n_values)
    frequent = np.arange(n_values) < 500
    informative = np.concatenate([np.flatnonzero(~frequent), rng.integers(500, size=3000)])
    other = rng.integers(n_values, size=len(informative))
    tested = np.repeat(np.flatnonzero(~frequent), 3)

    def rows(first: NDArray[Any], second: NDArray[Any]) -> csr_matrix:
        columns = np.column_stack([first, n_values + second]).ravel()
        ends = 2 * np.arange(len(first) + 1)
        shape = len(first), 2 * n_values
        return csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=shape)

    order = rng.permutation(len(informative))
    return Problem(
        rows(informative, other)[order],
        label[informative][order],
        rows(tested, rng.integers(n_values, size=len(tested))),
        label[tested],
    )


# Generated rows


def gaussian(
    seed: int,
    *,
    n: int,
    d: int,
    shares: Any,
    separation: float,
    n_test: int = 4000,
    even_test: bool = False,
) -> Problem:
    """Classes of equal covariance around random means at distance about `separation`."""
    rng = np.random.default_rng(seed)
    shares = np.asarray(shares, dtype=float)
    shares = shares / shares.sum()
    n_classes = len(shares)
    means = separation * rng.standard_normal((n_classes, d)) / np.sqrt(2 * d)
    counts = np.maximum(2, np.round(n * shares).astype(int))
    y = rng.permutation(np.repeat(np.arange(n_classes), counts))
    test_shares = np.full(n_classes, 1 / n_classes) if even_test else shares
    y_test = rng.choice(n_classes, n_test, p=test_shares)
    X, X_test = (means[labels] + rng.standard_normal((len(labels), d)) for labels in (y, y_test))
    return Problem(X.astype(np.float32), y, X_test.astype(np.float32), y_test)


def lattice(side: int, axes: int, d: int, seed: int, *, n: int, distance: float) -> Problem:
    """Classes on a line or a grid in the first features, the others noise."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*[np.arange(side)] * axes, indexing="ij"), -1).reshape(-1, axes)

    def rows(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        y = rng.permutation(np.arange(n) % len(places))
        X = rng.standard_normal((n, d))
        X[:, :axes] += distance * places[y]
        return X.astype(np.float32), y

    return Problem(*rows(n), *rows(4000))


def deciles(seed: int) -> Problem:
    """Ten classes, the deciles of a linear score of 20 features."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(20)
    direction /= np.linalg.norm(direction)
    X = rng.standard_normal((6000, 20)).astype(np.float32)
    scores = X @ direction
    y = np.searchsorted(np.quantile(scores, np.arange(1, 10) / 10), scores)
    return Problem(X[:2000], y[:2000], X[2000:], y[2000:])


# Ways to fit


def fit_with_weight(weight: float, estimator: Any, problem: Problem) -> None:
    estimator.fit(problem.X, problem.y, sample_weight=np.full(len(problem.y), weight))


def _class_weights(n_classes: int) -> NDArray[Any]:
    return np.random.default_rng(0).uniform(0.2, 5.0, n_classes)


def fit_with_class_weights_as_sample_weight(estimator: Any, problem: Problem) -> None:
    weights = _class_weights(problem.y.max() + 1)
    estimator.fit(problem.X, problem.y, sample_weight=weights[problem.y])


def fit_and_add(estimator: Any, problem: Problem) -> None:
    """Fit to 20 classes, then add the others, ten at a time."""
    X, y, *_ = problem
    first = y < 20
    estimator.fit(X[first], y[first])
    for start in range(20, y.max() + 1, 10):
        some = (y >= start) & (y < start + 10)
        estimator.partial_fit(X[some], y[some])


# The list


CLINC, CALTECH, TINY, OMNIGLOT = (
    "clinc150_minilm384",
    "caltech101_cnn1280",
    "tinyimagenet100_cnn1280",
    "omniglot1623_cnn1280",
)
#: Those regimes that `--quick` runs: some of each kind.
QUICK = {
    "clinc-1", "clinc-2", "clinc-5", "clinc-10", "caltech-2", "caltech-10", "tiny-5",
    "omniglot450-2", "clinc-3-closed", "clinc-tail", "clinc-tail-balanced",
    "clinc-tail-uniform", "caltech-tail", "caltech-tail-balanced", "caltech-tail-uniform",
    "clinc-imbalance-100-uniform", "two-large-twenty-small", "uneven-five",
    "uneven-five-recall", "line-10", "line-10-closed", "grid-100", "grid-100-closed", "deciles",
    "deciles-closed", "letters-closed", "letters-hint", "letters-hint-closed", "all-weights-1",
    "all-weights-100", "line-20", "line-20-weight-1", "weights-by-class", "weights-by-row",
    "overlapping-60", "overlapping-60-closed", "clinc-added", "text-3", "text-10",
    "text-10-closed", "long-text-20", "long-text-20-closed", "one-hot", "one-hot-closed",
    "tfidf-20",
}  # fmt: skip


def _closed(regime: Regime) -> Regime:
    name, title = f"{regime.name}-closed", f"{regime.title}, `refine=False`"
    return replace(regime, name=name, title=title, settings={"refine": False})


def _few_rows() -> Iterator[Regime]:
    for short, title, name, counts in (
        ("clinc", "CLINC-150", CLINC, (1, 2, 3, 5, 10, 20)),
        ("caltech", "Caltech-101", CALTECH, (1, 2, 3, 5, 10, 20)),
        ("tiny", "Tiny-ImageNet-100", TINY, (2, 5, 10)),
        ("omniglot450", "450 classes of Omniglot", OMNIGLOT, (1, 2, 3)),
        ("omniglot", "Omniglot", OMNIGLOT, (1, 2, 3)),
    ):
        n_classes = 450 if short == "omniglot450" else None
        for k in counts:
            yield Regime(
                f"{short}-{k}",
                f"{title}, {_rows_per_class(k)}",
                partial(few, name, k, n_classes=n_classes),
                n_seeds=1 if short == "omniglot" else 2,
            )
    two = Regime("clinc-2", "CLINC-150, 2 rows per class", partial(few, CLINC, 2))
    yield replace(
        two, name="clinc-2-refined", title=f"{two.title}, `refine=True`", settings={"refine": True}
    )
    for k in (1, 3, 100):
        title = f"CLINC-150, {_rows_per_class(k)}"
        yield _closed(Regime(f"clinc-{k}", title, partial(few, CLINC, k)))
    overlapping = Regime(
        "overlapping-60",
        "60 overlapping classes, 600 rows",
        partial(gaussian, n=600, d=30, shares=[1 / 60] * 60, separation=4.0),
        in_units=False,
        n_seeds=3,
    )
    yield overlapping
    yield _closed(overlapping)


def _rows_per_class(k: int) -> str:
    return f"{k} row{'s' if k > 1 else ''} per class"


def _uneven_classes() -> Iterator[Regime]:
    for name, title, make, n_seeds in (
        ("clinc-tail", "long tail of CLINC-150", partial(long_tail, CLINC), 2),
        ("caltech-tail", "long tail of Caltech-101", partial(long_tail, CALTECH), 2),
        ("tiny-tail", "long tail of Tiny-ImageNet-100", partial(long_tail, TINY), 1),
        ("clinc-imbalance-100", "CLINC-150, imbalance 100", partial(imbalanced, CLINC, 100.0), 2),
    ):
        plain = Regime(name, title, make, measure="recall", n_seeds=n_seeds)
        yield plain
        for word, settings in (
            ("balanced", {"class_weight": "balanced"}),
            ("uniform", {"prior": "uniform"}),
        ):
            shown = ", ".join(f'`{key}="{value}"`' for key, value in settings.items())
            yield replace(
                plain,
                name=f"{name}-{word}",
                title=f"{title}, {shown}",
                settings=settings,
                even=True,
            )
    yield Regime(
        "two-large-twenty-small",
        "two classes of 45 %, twenty of 0.5 %",
        partial(gaussian, n=2000, d=20, shares=[0.45] * 2 + [0.005] * 20, separation=5.0),
        measure="recall",
        in_units=False,
        n_seeds=2,
    )
    five = Regime(
        "uneven-five",
        "60, 10, 10, 10 and 10 % of 450 rows",
        partial(gaussian, n=450, d=20, shares=[0.6, 0.1, 0.1, 0.1, 0.1], separation=4.0),
        in_units=False,
        n_seeds=4,
    )
    yield five
    yield replace(five, name="uneven-five-recall", measure="recall")


def _few_directions() -> Iterator[Regime]:
    for name, title, make in (
        (
            "line-10",
            "10 classes on a line, 9 noise features",
            partial(lattice, 10, 1, 10, n=2000, distance=5.0),
        ),
        (
            "grid-100",
            "grid of 10 x 10 classes, 18 noise features",
            partial(lattice, 10, 2, 20, n=5000, distance=7.0),
        ),
        ("deciles", "deciles of a linear score", deciles),
        ("letters", "letters", partial(letters, False)),
        ("letters-hint", "letters, a feature tells every second one", partial(letters, True)),
    ):
        regime = Regime(name, title, make, in_units=False)
        yield regime
        yield _closed(regime)


def _weights() -> Iterator[Regime]:
    for weight in (1, 10, 100, 1000):
        yield Regime(
            f"all-weights-{weight}",
            f"400 rows, 300 features, all weights {weight:,}",
            partial(gaussian, n=400, d=300, shares=[0.1] * 10, separation=6.0),
            data="all-weights",
            fit=partial(fit_with_weight, float(weight)),
            in_units=False,
        )
    line = Regime(
        "line-20",
        "20 classes in one feature",
        partial(lattice, 20, 1, 1, n=2000, distance=2.5),
        in_units=False,
    )
    for regime in (
        line,
        Regime("clinc-5000", "CLINC-150, 5,000 rows", partial(some_rows, CLINC, 5000)),
    ):
        yield regime
        yield replace(
            regime,
            name=f"{regime.name}-weight-1",
            title=f"{regime.title}, `class_weight={{0: 1.0}}`",
            settings={"class_weight": {0: 1.0}},
        )
    by_class = Regime(
        "weights-by-class",
        "60 classes, 1,000 rows, `class_weight`, `refine=False`",
        partial(gaussian, n=1000, d=30, shares=[1 / 60] * 60, separation=4.5),
        {"refine": False, "class_weight": dict(enumerate(_class_weights(60).tolist()))},
        in_units=False,
        compared=False,
    )
    yield by_class
    yield replace(
        by_class,
        name="weights-by-row",
        title="60 classes, 1,000 rows, the same as `sample_weight`, `refine=False`",
        settings={"refine": False},
        fit=fit_with_class_weights_as_sample_weight,
    )


def _new_classes() -> Iterator[Regime]:
    yield Regime(
        "clinc-added",
        "CLINC-150, 130 classes added to 20",
        partial(few, CLINC, 100),
        {"keep_sums": True},
        data="clinc-100",
        fit=fit_and_add,
    )


def _wide_rows() -> Iterator[Regime]:
    for k in (3, 10, 100):
        regime = Regime(f"text-{k}", f"CLINC-150 texts, {_rows_per_class(k)}", partial(texts, k))
        yield regime
        yield _closed(regime)
    for k in (20, 60):
        regime = Regime(f"long-text-{k}", f"{k} sentences joined", partial(long_texts, k))
        yield regime
        yield _closed(regime)
    regime = Regime("one-hot", "one-hot rows, values seen once", one_hot)
    yield regime
    yield _closed(regime)
    yield Regime("tfidf-20", "20 intents, 400 rows of TF-IDF", partial(tfidf, 20, 20), n_seeds=2)


GROUPS = {
    "Few rows per class": tuple(_few_rows()),
    "Uneven classes": tuple(_uneven_classes()),
    "Few directions": tuple(_few_directions()),
    "Weights": tuple(_weights()),
    "New classes": tuple(_new_classes()),
    "Wide rows": tuple(_wide_rows()),
}
REGIMES = {regime.name: regime for group in GROUPS.values() for regime in group}


# Measuring


def evaluate(make_estimator: Callable[..., Any], regime: Regime, seed: int) -> Result | None:
    """Fit an estimator in a regime and measure it on the test rows.

    Parameters
    ----------
    make_estimator : callable
        Called with the settings of the regime; returns an estimator with `fit` and
        `predict_proba`, or None if it has no such settings.
    regime : Regime
    seed : int

    Returns
    -------
    dict, or None if the estimator does not support the regime
        "accuracy", "recall", "log_loss", "confidence", "ece" and "cpu".
    """
    problem = regime.rows(seed)
    estimator = make_estimator(**regime.settings)
    if estimator is None:
        return None
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regime.fit(estimator, problem)
        fitted = time.process_time()
        probabilities = np.asarray(estimator.predict_proba(problem.X_test), dtype=np.float64)
        predicted = np.asarray(estimator.predict(problem.X_test))
    end = time.process_time()
    found = metrics(problem.y_test, predicted, probabilities)
    return found | {"cpu": end - start, "fit_cpu": fitted - start}


def bitclass_estimator(n_bits: int, seed: int = 0, **fixed: Any) -> Callable[..., Any]:
    """A function for `evaluate`; settings that only save memory or sums are left out if unknown."""
    from bitclass import BinaryCodeClassifier

    known = BinaryCodeClassifier().get_params()

    def make(**settings: Any) -> Any:
        if "keep_sums" not in known:
            settings.pop("keep_sums", None)
        if not settings.keys() <= known.keys():
            return None
        return BinaryCodeClassifier(n_bits, n_jobs=1, random_state=seed, **(fixed | settings))

    return make


def peers_of(
    regime: Regime, seed: int, folder: Path = CACHE, *, run: bool = True
) -> dict[str, Any]:
    """Results of all settings of each peer, from the folder if they are there."""
    found: dict[str, Any] = {}
    if not regime.compared:
        return found
    for name in EVEN if regime.even else PLAIN:
        if name.startswith("cosine") and not regime.in_units:
            continue  # of features in different units, it means nothing
        path = folder / f"{regime.data}.{seed}.{name.replace(', ', '-').replace(' ', '-')}.json"
        if path.exists():
            found[name] = json.loads(path.read_text())
        elif run:
            found[name] = measure(name, regime.rows(seed), in_units=regime.in_units)
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found[name]))
    return {name: settings for name, settings in found.items() if settings}


def best_of(peers: Mapping[str, Any], measure: str) -> tuple[str, Result] | None:
    """Name and result of the best peer at its best setting."""
    pairs = [(name, one) for name, settings in peers.items() for one in settings]
    return max(pairs, key=lambda pair: pair[1][measure], default=None)


def summary(regime: Regime, seed: int, ours: Result | None, peers: Mapping[str, Any]) -> Result:
    """One record: ours, the best peer, and the log loss of logistic regression."""
    record: Result = {"regime": regime.name, "seed": seed, "measure": regime.measure, "ours": ours}
    best = best_of(peers, regime.measure)
    if best:
        record |= {"peer": best[0], "best": best[1]}
        regressions = {k: v for k, v in peers.items() if k.startswith("logistic")}
        chosen = best_of(regressions, regime.measure)
        if chosen:
            record["peer_log_loss"] = chosen[1]["log_loss"]
            losses = [one["log_loss"] for settings in regressions.values() for one in settings]
            record["lowest_peer_log_loss"] = min(losses)
    return record


# Tables, page and figure


def _mean(values: Iterable[Any]) -> float | None:
    some = [value for value in values if value is not None]
    return float(np.mean(some)) if some else None


def lines_of(records: Sequence[Result]) -> list[Result]:
    """Means over seeds, one line per regime and number of bits."""
    groups: dict[tuple[str, Any], list[Result]] = {}
    for record in records:
        groups.setdefault((record["regime"], record.get("bits")), []).append(record)
    lines = []
    for (name, bits), some in groups.items():
        measure = some[0]["measure"]
        mine = [record["ours"] or {} for record in some]
        ours = _mean(one.get(measure) for one in mine)
        peer = _mean(record.get("best", {}).get(measure) for record in some)
        peers = sorted({record["peer"] for record in some if "peer" in record})
        lines.append(
            {
                "regime": name,
                "bits": bits,
                "measure": measure,
                "ours": ours and 100 * ours,
                "best peer": peer and 100 * peer,
                "peer": "; ".join(peers),
                "difference": None if None in (ours, peer) else 100 * (ours - peer),
                "log loss": _mean(one.get("log_loss") for one in mine),
                "peer's log loss": _mean(record.get("peer_log_loss") for record in some),
                "lowest": _mean(record.get("lowest_peer_log_loss") for record in some),
                "confidence": _mean(one.get("confidence") for one in mine),
                "ECE": _mean(one.get("ece") for one in mine),
                "CPU s": _mean(one.get("cpu") for one in mine),
                "seeds": len(some),
            }
        )
    return lines


def _number(value: float | None, digits: int, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.{digits}f}"


def readable(lines: Iterable[Result]) -> list[Result]:
    """The same lines as texts, with few digits."""
    digits = {"log loss": 2, "peer's log loss": 2, "lowest": 2, "confidence": 3, "ECE": 3}
    return [
        {
            key: _number(value, digits.get(key, 1), "+" if key == "difference" else "")
            if key not in ("bits", "seeds") and not isinstance(value, str)
            else value
            for key, value in line.items()
        }
        for line in lines
    ]


def verdict(lines: Sequence[Result]) -> str:
    """How far below the best peer we are, in the worst regime and on average."""
    parts = []
    for bits in sorted({line["bits"] for line in lines if line["bits"]}):
        some = [line for line in lines if line["bits"] == bits and line["difference"] is not None]
        if some:
            worst = min(some, key=lambda line: line["difference"])
            errors = [line for line in lines if line["bits"] == bits and line["ECE"] is not None]
            parts.append(
                f"{bits} bits: mean difference {np.mean([x['difference'] for x in some]):+.2f}, "
                f"worst {worst['difference']:+.1f} ({worst['regime']}), "
                f"{sum(x['difference'] < -1 for x in some)} of {len(some)} below by over 1 point, "
                f"{sum(x['ECE'] > 0.05 for x in errors)} of {len(errors)} with ECE over 0.05."
            )
    return "\n".join(parts)


def draw(lines: Sequence[Result], path: Path) -> None:
    """Difference from the best peer in each regime."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "regimes", "svg.fonttype": "none"}
    bits = max(line["bits"] for line in lines)
    found = {x["regime"]: x for x in lines if x["bits"] == bits and x["difference"] is not None}
    groups = {
        title: [found[regime.name] for regime in group if regime.name in found]
        for title, group in GROUPS.items()
    }
    groups = {title: some for title, some in groups.items() if some}
    fig, axes = plt.subplots(
        len(groups),
        1,
        figsize=(9, 0.2 * len(found) + 0.4 * len(groups) + 0.5),
        height_ratios=[len(some) for some in groups.values()],
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    limit = 10
    for ax, (title, some) in zip(axes[:, 0], groups.items(), strict=True):
        values = np.clip([line["difference"] for line in some], -limit, limit)
        colours = ["#2a6f97" if value >= -1 else "#c1666b" for value in values]
        ax.barh(range(len(some)), values, color=colours, height=0.7)
        for row, line in enumerate(some):
            text = f"{line['ours']:.1f} / {line['best peer']:.1f}"
            ax.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", size=7)
            if abs(line["difference"]) > limit:
                text, side = f" {line['difference']:+.0f} ", "left" if values[row] < 0 else "right"
                ax.annotate(text, (values[row], row), va="center", ha=side, size=7, color="white")
        titles = [REGIMES[line["regime"]].heading.replace("`", "") for line in some]
        ax.set_yticks(range(len(some)), titles)
        ax.set_ylim(len(some) - 0.4, -0.6)
        ax.set_xlim(-limit, limit)
        ax.axvline(0, color="0.3", lw=0.8)
        ax.set_title(title, loc="left", size=8, weight="bold", pad=2)
        ax.tick_params(labelsize=7, length=0)
        ax.grid(axis="x", color="0.9", lw=0.6)
        ax.set_axisbelow(True)
        ax.spines[:].set_visible(False)
    axes[-1, 0].set_xlabel(
        f"points above or below the best linear model (right: both, at {bits} bits)",
        size=8,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(fig)


def page_tables(lines: Sequence[Result]) -> dict[str, list[Result]]:
    """A table per group: accuracy at each number of bits, the rest at the largest."""
    of_regime: dict[str, list[Result]] = {}
    for line in sorted(lines, key=lambda line: line["bits"]):
        of_regime.setdefault(line["regime"], []).append(line)
    all_bits = sorted({line["bits"] for line in lines})
    tables = {}
    for group, regimes in GROUPS.items():
        tables[group] = []
        for regime in regimes:
            some = of_regime.get(regime.name)
            if not some:
                continue
            shown = readable(some)
            ours = {line["bits"]: line["ours"] for line in shown}
            last = shown[-1]
            tables[group].append(
                {
                    "": regime.heading,
                    **{f"{bits} bits": ours.get(bits, "") for bits in all_bits},
                    "best linear": f"{last['best peer']} {last['peer']}",
                    "difference": last["difference"],
                    "log loss": last["log loss"],
                    "of logistic regression": last["peer's log loss"],
                    "ECE": last["ECE"],
                    "CPU s": last["CPU s"],
                }
            )
    return tables


def write_results(records: Sequence[Result], figure: Path = FIGURE) -> None:
    """Write the page and the figure."""
    lines = lines_of(records)
    draw(lines, figure)
    bits = max(line["bits"] for line in lines)
    last = [x for x in lines if x["bits"] == bits and x["difference"] is not None]
    behind = sorted((x for x in last if x["difference"] < -1), key=lambda x: x["difference"])
    worse = "\n".join(
        f"- {REGIMES[x['regime']].heading} ({x['difference']:+.1f}, {x['peer']})" for x in behind
    )
    picture = f"![points above or below the best linear model](../../docs/figures/{figure.name})"
    parts = [
        NOTE,
        verdict(lines).replace("\n", "\n\n"),
        f"Regimes in which a linear model is better by over 1 point at {bits} bits:",
        worse or "- none",
        picture,
        "",
    ]
    write_page("regimes", "Regimes", "\n\n".join(parts), page_tables(lines))


# The command


def main() -> None:
    """Measure regimes and print a table; all of them at their defaults also write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of regimes, with commas; a trailing * is any ending")
    parser.add_argument("--quick", action="store_true", help="one or two of each kind, one seed")
    parser.add_argument("--bits", default="128,256")
    parser.add_argument("--seeds", help="such as 0,1; otherwise those of each regime")
    parser.add_argument("--no-peers", action="store_true", help="only results that are kept")
    parser.add_argument("--no-ours", action="store_true", help="measure the peers only")
    parser.add_argument("--cache", type=Path, default=CACHE, help="results of the peers")
    parser.add_argument("--json", type=Path, help="also write the results here, one by one")
    parser.add_argument("--table", type=Path, help="also write the table here")
    parser.add_argument("--page", type=Path, help="write page and figure from this JSON file")
    parser.add_argument("--list", action="store_true", help="list the regimes")
    options = parser.parse_args()
    if options.list:
        for regime in REGIMES.values():
            print(f"{regime.name:30}{'quick ' if regime.name in QUICK else '':6}{regime.title}")
        return
    if options.page:
        write_results(json.loads(options.page.read_text()))
        return
    chosen = _selected(options)
    bits = [] if options.no_ours else [int(text) for text in options.bits.split(",")]
    everything = not (options.only or options.quick or options.seeds or options.no_ours)
    path = options.json or (CACHE / "results.json" if everything else None)
    records: list[Result] = []
    with threadpool_limits(1):
        for regime in chosen:
            seeds = range(1 if options.quick else regime.n_seeds)
            if options.seeds:
                seeds = [int(text) for text in options.seeds.split(",")]
            for seed in seeds:
                try:
                    records += _measured(regime, seed, bits, options)
                except MissingError as missing:
                    print(f"{regime.name}: {missing}: skipped", flush=True)
                    break
                if path:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(records, indent=1))
                if options.table:
                    lines = lines_of(records)
                    options.table.write_text(f"{verdict(lines)}\n\n{markdown(readable(lines))}\n")
    if everything and records:
        write_results(records)
    else:
        print(f"\n{verdict(lines_of(records))}")


def _selected(options: argparse.Namespace) -> list[Regime]:
    if options.only:
        found = []
        for name in options.only.split(","):
            some = [
                regime
                for key, regime in REGIMES.items()
                if key == name or (name.endswith("*") and key.startswith(name[:-1]))
            ]
            if not some:
                sys.exit(f"no regime {name!r}; see --list")
            found += some
        return found
    return [regime for regime in REGIMES.values() if regime.name in QUICK or not options.quick]


def _measured(
    regime: Regime, seed: int, bits: Sequence[int], options: argparse.Namespace
) -> list[Result]:
    peers = peers_of(regime, seed, options.cache, run=not options.no_peers)
    records = []
    for n_bits in bits:
        ours = evaluate(bitclass_estimator(n_bits, seed), regime, seed)
        if ours is None:
            print(f"{regime.name:32} these settings are not supported: skipped", flush=True)
            continue
        records.append({"bits": n_bits, **summary(regime, seed, ours, peers)})
    if not bits:
        records.append({"bits": None, **summary(regime, seed, None, peers)})
    for line in lines_of(records):
        _print(line, seed)
    return records


_header_printed = False


def _print(line: Result, seed: int) -> None:
    """A line of the table as soon as it is known."""
    global _header_printed
    if not _header_printed:
        print(
            f"{'regime':26} seed bits {'':8} ours  peer  diff | loss  peer's (lowest) | conf  ECE "
            f"| CPU s | best peer"
        )
        _header_printed = True
    one = readable([line])[0]
    loss_of_peer = one["peer's log loss"]
    print(
        f"{one['regime']:26} {seed:4} {one['bits'] or '':4} {one['measure']:8} {one['ours']:>4} "
        f"{one['best peer']:>5} {one['difference']:>5} | {one['log loss']:>5} "
        f"{loss_of_peer:>5} ({one['lowest']:>4})    | {one['confidence']:>5} "
        f"{one['ECE']:>5} | {one['CPU s']:>5} | {one['peer']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
