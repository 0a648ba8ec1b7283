"""Inputs of no known class: `make unknown`.

CLINC-150 with its out-of-scope queries, and open classes: a share of the classes is known, and the
test rows of all others are open. Scores of all methods, thresholds on known rows alone. Writes
`results/unknown.md`, `results/unknown.csv` and `docs/figures/unknown.svg`; a run goes on where the
one before stopped. After changes to the learner, `--again` measures bitclass alone.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.preprocessing import normalize

import fonts
from harness import DATA, parse_options, sweep, threads_of_all, write_page

CSV = Path(__file__).parent / "results" / "unknown.csv"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "unknown.svg"
NOTE = (
    "How many inputs of no known class are recognised. Thresholds are set on rows of known classes "
    "alone, the same for all methods: CLINC-150's validation queries, else a tenth of the training "
    "rows; `bitclass` at 256 bits by its best class score. One column sets them on the known test "
    "rows instead, so that all reject the same share of these. Penalties of the others are those "
    "of the highest AUROC on the test rows, in their favour; a dash means not run, or not for "
    "sparse rows. Means over ten seeds on CLINC-150, which choose the known classes, and three on "
    "others. Measured by `make unknown`."
)
VALUES = (
    "auroc", "rejected_of_known", "rejected_of_unknown", "accuracy", "macro_f1",
    "table_1", "table_4", "table_10", "table_of_unknown", "table_macro_f1", "unknown_at_share",
)  # fmt: skip
OPEN = -1
CLINC, TEXT, OMNIGLOT = "clinc150_minilm384", "clinc150_text", "omniglot1623_cnn1280"
CHARACTERS = "characters"
TITLES = {
    CLINC: "CLINC-150, embeddings",
    TEXT: "CLINC-150, text",
    "caltech101_cnn1280": "Caltech-101",
    "tinyimagenet100_cnn1280": "Tiny-ImageNet-100",
    f"{OMNIGLOT} by alphabet": "Omniglot, alphabets left out",
    CHARACTERS: "Han characters of an unseen typeface, blocks left out",
    OMNIGLOT: "Omniglot",
    "letter16": "letters",
    "cifar10_gist512": "CIFAR-10 GIST",
    "geonames_names": "GeoNames, text",
}
OPEN_DATA = [*TITLES][:6]
SHARES = (25, 50, 75)
# GeoNames takes minutes, and has test rows enough.
SEEDS = {CLINC: 10, TEXT: 10, "geonames_names": 1}
# Of each block of 256 code points; blocks are ordered by radical.
CHARACTERS_PER_BLOCK = 64


class Rows(NamedTuple):
    """Rows of known classes to train on and to set thresholds by, and all rows to test."""

    X: Any
    y: NDArray[Any]
    X_valid: Any
    X_test: Any
    y_test: NDArray[Any]  # OPEN for rows of no known class


class Parts(NamedTuple):
    """All rows of a dataset; `outside` are of no class."""

    X: Any
    y: NDArray[Any]
    X_valid: Any
    y_valid: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]
    outside: Any
    groups: NDArray[Any]  # of the classes: those of one group are known or open together


@lru_cache(maxsize=1)
def parts(name: str) -> Parts:
    if name == CHARACTERS:
        return _characters()
    if name.endswith(("text", "names")):
        return _texts(name)
    name, _, by_alphabet = name.partition(" by ")
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, X_test = (arrays[key].astype(np.float32) for key in ("X_train", "X_test"))
        labels, y = np.unique(arrays["y_train"], return_inverse=True)
        y_test = np.searchsorted(labels, arrays["y_test"])
        groups = np.arange(len(labels))
        if by_alphabet:
            groups = np.array([path.split("/")[1] for path in arrays["classes"][labels]])
    if name == CLINC:
        with np.load(DATA / "clinc150_oos_minilm384.npz") as more:
            valid, outside = (more[key].astype(np.float32) for key in ("X_val", "X_oos_test"))
            y_valid = np.searchsorted(labels, more["y_val"])
        return Parts(X, y, valid, y_valid, X_test, y_test, outside, groups)
    return Parts(X, y, X[:0], y[:0], X_test, y_test, X[:0], groups)


def _texts(name: str) -> Parts:
    from bitclass.text import csr_rows, fit_ngrams

    def lines(path: Path) -> NDArray[Any]:
        with gzip.open(path, "rt") as file:
            return np.array([line.rstrip("\n").split("\t") for line in file], dtype=object)

    table = lines(DATA / f"{name}.tsv.gz")
    if name == TEXT:
        table = np.concatenate([table, lines(DATA / "clinc150_oos_text.tsv.gz")])
    texts = {part: table[table[:, 0] == part] for part in ("train", "val", "test", "oos_test")}
    features = fit_ngrams([texts["train"][:, 2]])
    X, valid, X_test, outside = (csr_rows(features, part[:, 2]) for part in texts.values())
    labels = np.unique(texts["train"][:, 1].astype(str))
    y, y_valid, y_test = (
        np.searchsorted(labels, texts[part][:, 1].astype(str)) for part in ("train", "val", "test")
    )
    return Parts(X, y, valid, y_valid, X_test, y_test, outside, np.arange(len(labels)))


def _characters() -> Parts:
    """Characters of twelve typefaces to train on, and of LXGW WenKai to test."""
    blocks = np.arange(fonts.UNIFIED.start, fonts.UNIFIED.stop - 255)
    blocks = blocks[: len(blocks) // 256 * 256].reshape(-1, 256)
    classes = np.sort(np.random.default_rng(0).permuted(blocks, axis=1)[:, :CHARACTERS_PER_BLOCK])
    classes = classes.ravel()

    def rows(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        characters, features = fonts.load_face(name)
        chosen = np.flatnonzero(np.isin(characters, classes))
        return (
            features[chosen].astype(np.float32),
            np.searchsorted(classes, characters[chosen]),
        )

    seen = [rows(name) for name in fonts.drawn_faces() if name not in ("wenkai", "tw-kai")]
    X, y = (np.concatenate(part) for part in zip(*seen, strict=True))
    return Parts(X, y, X[:0], y[:0], *rows("wenkai"), X[:0], classes // 256)


@lru_cache(maxsize=1)
def open_rows(name: str, known_share: int, seed: int) -> Rows:
    """Rows where `known_share` % of the classes, or of their groups, are known."""
    data, rng = parts(name), np.random.default_rng(seed)
    names = np.unique(data.groups)
    chosen = rng.permutation(names)[: max(2, round(known_share / 100 * len(names)))]
    is_known = np.isin(data.groups, chosen)
    train = np.flatnonzero(is_known[data.y])
    if len(data.y_valid):
        X_valid = data.X_valid[is_known[data.y_valid]]
    else:
        held = rng.random(len(train)) < 0.1
        train, X_valid = train[~held], data.X[train[held]]
    y_test = np.where(is_known[data.y_test], data.y_test, OPEN)
    outside = np.full(data.outside.shape[0], OPEN)
    stack: Any = sp.vstack if sp.issparse(data.X) else np.concatenate
    X_test = stack([data.X_test, data.outside]) if len(outside) else data.X_test
    if sp.issparse(X_test):
        X_test = X_test.tocsr()
    return Rows(data.X[train], data.y[train], X_valid, X_test, np.append(y_test, outside))


# Methods: for rows, predicted classes and scores that fall if no class fits. Those with a penalty
# have several; the one of the highest AUROC on the test rows counts, in their favour.

Answer = tuple[NDArray[Any], NDArray[Any]]
Scorer = Callable[[Any], Answer]
PENALTIES = (0.01, 0.1, 1.0)


@lru_cache(maxsize=1)
def fitted(data: str, known: int, seed: int, n_bits: int) -> Any:
    from bitclass import BinaryCodeClassifier

    rows = open_rows(data, known, seed)
    return BinaryCodeClassifier(n_bits, random_state=seed).fit(rows.X, rows.y).packed()


def by_score(model: Any, X: Any) -> Answer:
    return model.predict(X), model.best_scores(X)


def by_probability(model: Any, X: Any) -> Answer:
    best = model.top_classes(X, 1, probabilities=True)
    return best.labels[:, 0], best.probabilities[:, 0]


def logistic_regression(rows: Rows) -> Iterator[Scorer]:
    if sp.issparse(rows.X) or rows.X.size * len(np.unique(rows.y)) > 1e9:
        return  # minutes
    centre, scale = rows.X.mean(axis=0), float(rows.X.std())
    model = LogisticRegression(max_iter=200, warm_start=True)
    for penalty in PENALTIES[::-1]:
        model.set_params(C=0.01 / penalty).fit((rows.X - centre) / scale, rows.y)

        def answer(X: Any) -> Answer:
            shares = model.predict_proba((X - centre) / scale)
            return model.classes_[shares.argmax(axis=1)], shares.max(axis=1)

        yield answer


def cosine(rows: Rows) -> Iterator[Scorer]:
    """To the nearest class mean of rows of unit length."""
    classes, y = np.unique(rows.y, return_inverse=True)
    member = sp.csr_array((np.ones(len(y)), (y, np.arange(len(y)))))
    means = normalize(member @ normalize(rows.X))

    def answer(X: Any) -> Answer:
        scores = normalize(X) @ means.T
        scores = scores.toarray() if sp.issparse(scores) else scores
        return classes[scores.argmax(axis=1)], scores.max(axis=1)

    yield answer


def nearest_neighbours(rows: Rows, k: int = 5) -> Iterator[Scorer]:
    """The class of the nearest row by cosine, and the mean cosine to the 5 nearest."""
    known = normalize(rows.X)

    def answer(X: Any) -> Answer:
        found = []
        for start in range(0, X.shape[0], 512):
            scores = normalize(X[start : start + 512]) @ known.T
            scores = scores.toarray() if sp.issparse(scores) else scores
            best = np.partition(scores, -k, axis=1)[:, -k:]
            found.append((rows.y[scores.argmax(axis=1)], best.mean(axis=1)))
        labels, similar = zip(*found, strict=True)
        return np.concatenate(labels), np.concatenate(similar)

    yield answer


def mahalanobis(rows: Rows, relative: bool = False) -> Iterator[Scorer]:
    """Distance to the nearest class mean, perhaps less that to the mean of all rows."""
    if sp.issparse(rows.X):
        return
    classes, y = np.unique(rows.y, return_inverse=True)
    means = np.stack([rows.X[y == c].mean(axis=0, dtype=np.float64) for c in range(len(classes))])
    centre = rows.X.mean(axis=0)
    scatters = [R.T @ R / len(R) for R in (rows.X - means[y], rows.X - centre)]

    def whitening(scatter: NDArray[Any], penalty: float) -> NDArray[Any]:
        d = len(scatter)
        factor = np.linalg.cholesky(scatter + penalty * np.trace(scatter) / d * np.eye(d))
        return np.asarray(scipy.linalg.solve_triangular(factor, np.eye(d), lower=True).T)

    for penalty in PENALTIES:
        within, overall = (whitening(scatter, penalty) for scatter in scatters)

        def answer(
            X: Any, within: NDArray[Any] = within, overall: NDArray[Any] = overall
        ) -> Answer:
            A, M = X @ within, means @ within
            squares = (A**2).sum(axis=1)[:, None] - 2.0 * A @ M.T + (M**2).sum(axis=1)
            scores = -squares.min(axis=1)
            if relative:
                scores += (((X - centre) @ overall) ** 2).sum(axis=1)
            return classes[squares.argmin(axis=1)], scores

        yield answer


#: Number of bits, and the score.
OURS = {
    "bitclass": (256, by_score),
    "bitclass, probability": (256, by_probability),
    "bitclass, 128 bits": (128, by_score),
}
PEERS: dict[str, Callable[[Rows], Iterator[Scorer]]] = {
    "logistic regression": logistic_regression,
    "cosine to centroid": cosine,
    "Mahalanobis": mahalanobis,
    "relative Mahalanobis": partial(mahalanobis, relative=True),
    "5 nearest rows": nearest_neighbours,
}
METHODS = [*OURS, *PEERS]


# Cells


def run(cell: Mapping[str, Any]) -> Mapping[str, float]:
    """Results of one method; empty if it would take too long."""
    place = cell["data"], cell["known"], cell["seed"]
    rows = open_rows(*place)
    if cell["method"] == "table":
        return table(fitted(*place, 256), rows)
    if cell["method"] in OURS:
        n_bits, answer = OURS[cell["method"]]
        scorers: Iterator[Scorer] = iter([partial(answer, fitted(*place, n_bits))])
    else:
        scorers = PEERS[cell["method"]](rows)
    is_open, found = rows.y_test == OPEN, []
    for scorer in scorers:
        valid, (labels, scores) = scorer(rows.X_valid)[1], scorer(rows.X_test)
        # At 100 % known the threshold of the out-of-scope queries, else that of open classes.
        share = 0.04 if cell["known"] == 100 else 0.1
        rejected = scores < np.quantile(valid, share)
        result = {"auroc": float(roc_auc_score(~is_open, scores))}
        # Where methods reject the same share of the known test rows: comparable, but not to be had.
        threshold = np.quantile(scores[~is_open], share)
        result["unknown_at_share"] = 100 * float(np.mean(scores[is_open] < threshold))
        result |= _shares(rejected, is_open) | _measures(labels, rejected, rows.y_test)
        found.append(result)
    return max(found, key=lambda result: result["auroc"], default={})


def table(model: Any, rows: Rows) -> Mapping[str, float]:
    """Rejections by the table in the model, which knows no validation rows."""
    typicality, is_open = model.typicality(rows.X_test), rows.y_test == OPEN
    found = {f"table_{q}": 100 * float(np.mean(typicality[~is_open] < q / 100)) for q in (1, 4, 10)}
    if is_open.any():
        found["table_of_unknown"] = 100 * float(np.mean(typicality[is_open] < 0.04))
        measures = _measures(model.predict(rows.X_test), typicality < 0.1, rows.y_test)
        found["table_macro_f1"] = measures["macro_f1"]
    return found


def _shares(rejected: NDArray[Any], is_open: NDArray[Any]) -> dict[str, float]:
    return {
        "rejected_of_known": 100 * float(rejected[~is_open].mean()),
        "rejected_of_unknown": 100 * float(rejected[is_open].mean()),
    }


def _measures(labels: NDArray[Any], rejected: NDArray[Any], y: NDArray[Any]) -> dict[str, float]:
    found = np.where(rejected, OPEN, labels)
    f1 = f1_score(y, found, average="macro", labels=np.unique(y), zero_division=0)
    return {"accuracy": float(np.mean(found == y)), "macro_f1": float(f1)}


def cells(data: list[str]) -> Iterator[dict[str, Any]]:
    for name in data:
        shares = (100, *SHARES) if name in OPEN_DATA else (100,)
        if name.endswith("alphabet"):
            shares = SHARES
        for known, seed in itertools.product(shares, range(SEEDS.get(name, 3))):
            is_clinc = name in (CLINC, TEXT)
            for method in ["table", *METHODS] if known < 100 or is_clinc else ["table"]:
                without_chance = known == 100 and seed and method in PEERS
                if not without_chance and (is_clinc or method != "bitclass, 128 bits"):
                    yield {"data": name, "known": known, "seed": seed, "method": method}


def forget_bitclass() -> None:
    """Keep the results of other methods in the CSV file, as far as they are used."""
    used = [{key: str(value) for key, value in cell.items()} for cell in cells([*TITLES])]
    with CSV.open(newline="") as file:
        reader = csv.DictReader(file)
        kept = [row for row in reader if row["method"] in PEERS]
    kept = [row for row in kept if any(cell.items() <= row.items() for cell in used)]
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(kept)


# Page and figure


def mean(found: list[dict[str, str]], column: str, **where: Any) -> float | None:
    """Mean over seeds of a column, None without values."""
    wanted = {key: str(value) for key, value in where.items()}
    values = [float(row[column]) for row in found if wanted.items() <= row.items() and row[column]]
    return float(np.mean(values)) if values else None


def _points(value: float | None, factor: float = 1.0, digits: int = 1) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def out_of_scope(found: list[dict[str, str]], name: str) -> list[dict[str, Any]]:
    rows = []
    for method in METHODS:
        values = [
            mean(found, column, data=name, known=100, method=method)
            for column in ("auroc", "rejected_of_known", "rejected_of_unknown", "unknown_at_share")
        ]
        if values[0] is not None:
            cells = (_points(values[0], 100), *map(_points, values[1:]))
            titles = (
                "AUROC",
                "known test rows rejected (%)",
                "unknown rows rejected (%)",
                "unknown rows, where exactly 4 % of the known test rows are rejected (%)",
            )
            rows.append({"score": method, **dict(zip(titles, cells, strict=True))})
    own = [
        mean(found, column, data=name, known=100, method="table")
        for column in ("table_4", "table_of_unknown")
    ]
    rows.append(
        dict(zip(rows[0], ("bitclass, `reject=0.04`", "", *map(_points, own), ""), strict=True))
    )
    return rows


def open_table(found: list[dict[str, str]], name: str) -> list[dict[str, Any]]:
    rows = []
    for method in METHODS:
        row = {"score": method}
        for known in SHARES:
            where = {"data": name, "known": known, "method": method}
            both = (mean(found, column, **where) for column in ("accuracy", "macro_f1"))
            row[f"{known} % known"] = " / ".join(_points(value, 100) for value in both)
            row[f"AUROC, {known} %"] = _points(mean(found, "auroc", **where), 100)
        if set(row.values()) - {method, "-", "- / -"}:
            rows.append(row)
    return rows


def table_of_tables(found: list[dict[str, str]]) -> list[dict[str, Any]]:
    rows = []
    for name, title in TITLES.items():
        row = {"test rows of": title}
        for q in (1, 4, 10):
            values = [
                float(line[f"table_{q}"])
                for line in found
                if (line["data"], line["known"], line["method"]) == (name, "100", "table")
            ]
            if values:
                row[f"`reject={q / 100}`"] = (
                    f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"
                )
        if len(row) > 1:
            rows.append(row)
    return rows


def speed() -> list[dict[str, Any]]:
    """Time of prediction with and without rejecting, where it is short: few classes."""
    rows, rng = [], np.random.default_rng(0)
    wide = rng.standard_normal((4500, 4096)).astype(np.float32)
    cases = [
        (TITLES[CLINC], 128, open_rows(CLINC, 100, 0).X_test[:4500], CLINC),
        (TITLES[CLINC], 256, open_rows(CLINC, 100, 0).X_test[:4500], CLINC),
        ("4,096 features, 150 classes", 128, wide, None),
        (TITLES[TEXT], 256, open_rows(TEXT, 100, 0).X_test[:4500], TEXT),
    ]
    with threads_of_all(1):
        for title, n_bits, X, name in cases:
            model = fitted(name, 100, 0, n_bits) if name else _random_model(X, n_bits)
            ratio = _ratio(
                partial(model.predict, X, reject=0.04, unknown_label=OPEN),
                partial(model.predict, X, reject=0),
            )
            rows.append(
                {
                    "4,500 rows of": title,
                    "bits": n_bits,
                    "CPU time with `reject` / without": f"{ratio:.3f}",
                }
            )
    return rows


def _random_model(X: NDArray[np.float32], n_bits: int) -> Any:
    from bitclass import BinaryCodeClassifier

    y = np.arange(len(X)) % 150
    return (
        BinaryCodeClassifier(n_bits, refine=False, random_state=0).fit(X[:1500], y[:1500]).packed()
    )


def _ratio(one: Callable[[], Any], other: Callable[[], Any], rounds: int = 400) -> float:
    """Ratio of CPU times: of the fastest tenth, which other processes disturb little."""
    taken: dict[Callable[[], Any], list[float]] = {one: [], other: []}
    for number in range(rounds):
        for work in (one, other) if number % 2 else (other, one):
            start = time.process_time()
            work()
            taken[work].append(time.process_time() - start)
    return float(np.quantile(taken[one], 0.1) / np.quantile(taken[other], 0.1))


def draw(found: list[dict[str, str]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    methods = [name for name in METHODS if name != "bitclass, 128 bits"]
    for place, (name, colour) in enumerate(((CLINC, "#3a4e7a"), (TEXT, "#8a8f9c"))):
        heights = [
            mean(found, "rejected_of_unknown", data=name, known=100, method=method) or 0
            for method in methods
        ]
        at = np.arange(len(methods)) + 0.4 * place
        left.barh(at, heights, 0.4, color=colour, label=TITLES[name])
    left.set_yticks(np.arange(len(methods)) + 0.2, methods)
    left.invert_yaxis()
    left.set(title="CLINC-150: out-of-scope queries rejected (%)", xlim=(0, 100))
    left.set_xlabel("at a threshold that rejects 4 % of validation queries")
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    for method in methods:
        line = [mean(found, "auroc", data=name, known=50, method=method) for name in OPEN_DATA]
        style = {"markersize": 10, "color": "#3a4e7a"} if method == "bitclass" else {}
        right.plot([np.nan if v is None else 100 * v for v in line], "o", label=method, **style)
    right.set_xticks(
        range(len(OPEN_DATA)), [TITLES[name] for name in OPEN_DATA], rotation=20, ha="right"
    )
    right.set(title="half of the classes open: AUROC (%)")
    right.legend(frameon=False, fontsize=7)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=TITLES, help="only this dataset, without a page")
    parser.add_argument("--again", action="store_true", help="measure bitclass again, not others")
    options, _ = parse_options(parser)
    if options.again:
        forget_bitclass()
    wanted = [name for name in TITLES if options.data in (None, name)]
    if CHARACTERS in wanted and not fonts.missing_packages():
        fonts.draw_all()
    drawn = {"wenkai"} < set(fonts.drawn_faces())
    missing = [
        name
        for name in wanted
        if not (drawn if name == CHARACTERS else list(DATA.glob(f"{name.partition(' by ')[0]}.*")))
    ]
    for name in missing:
        print(f"{name}: skipped, because its data or fonts are missing")
    with threads_of_all(1):
        found = sweep(CSV, cells([n for n in wanted if n not in missing]), VALUES, run)
    if options.data or missing:
        return
    tables = {
        f"Out-of-scope queries, {TITLES[name]}, 4 % of validation queries rejected":
            out_of_scope(found, name)
        for name in (CLINC, TEXT)
    }  # fmt: skip
    for name in OPEN_DATA:
        heading = (
            f"Open classes, {TITLES[name]}: accuracy / macro-F1, 10 % of validation rows rejected"
        )
        tables[heading] = open_table(found, name)
    heading = (
        "Known test rows rejected by the table of the model (%): mean (lowest to highest seed)"
    )
    tables[heading] = table_of_tables(found)
    tables["Prediction, one thread"] = speed()
    write_page("unknown", "Inputs of no known class", NOTE, tables)
    draw(found)


if __name__ == "__main__":
    main()
