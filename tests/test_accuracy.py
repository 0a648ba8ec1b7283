"""Accuracy on real data: what the learner must keep, a point below what it reached."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, TextClassifier
from bitclass.paper import PaperClassifier
from bitclass.training import refine

pytestmark = pytest.mark.slow

DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True)
def usual_refinement(monkeypatch, short_refinement):
    monkeypatch.setattr(refine, "_MIN_VISITS", short_refinement)


def dataset(name):
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set BITCLASS_DATA to the folder with {path.name}")
    with np.load(path, allow_pickle=False) as arrays:
        return [arrays[key] for key in ("X_train", "y_train", "X_test", "y_test")]


def some_rows(y, n_per_class):
    """Indices of random rows of each class; neighbours are often alike."""
    random = np.random.default_rng(0)
    chosen = [random.permutation(np.flatnonzero(y == c))[:n_per_class] for c in np.unique(y)]
    return np.sort(np.concatenate(chosen))


@pytest.mark.parametrize(
    ("name", "n_per_class", "floor"),
    [
        ("letter16", 1000, 0.80),
        ("letter16", 20, 0.69),
        ("clinc150_minilm384", 10, 0.895),
        ("clinc150_minilm384", 3, 0.795),
    ],
)
def test_accuracy_at_128_bits(name, n_per_class, floor):
    X, y, X_test, y_test = dataset(name)
    rows = some_rows(y, n_per_class)
    classifier = BinaryCodeClassifier(128, random_state=0).fit(X[rows], y[rows])
    found = classifier.score(X_test, y_test)
    assert found >= floor, classifier.report_
    # The report, and the confidence, come from rows that the model had not seen.
    assert classifier.report_.accuracy == pytest.approx(found, abs=0.06)
    confidence = classifier.predict_proba(X_test).max(axis=1).mean()
    assert confidence == pytest.approx(found, abs=0.1)


@pytest.mark.parametrize(
    ("name", "floor"),
    [
        ("letter16", 0.54),
        ("cifar10_gist512", 0.545),
        ("caltech101_cnn1280", 0.92),
        ("clinc150_minilm384", 0.885),
        ("tinyimagenet100_cnn1280", 0.67),
    ],
)
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_the_papers_method_at_128_bits(name, floor, loss):
    """With the better of random and projection codes."""
    X, y, X_test, y_test = dataset(name)
    found = {}
    for codes in ("random", "projection"):
        models = [
            PaperClassifier(128, loss=loss, initial_codes=codes, random_state=seed).fit(X, y)
            # Accuracies on letters, which are quick to learn, vary by a point and a half.
            for seed in range(4 if name == "letter16" else 1)
        ]
        found[codes] = float(np.mean([model.score(X_test, y_test) for model in models]))
    assert max(found.values()) >= floor, found


def test_models_of_few_texts_reject_about_as_many_new_ones_as_asked():
    """Models of folds have fewer rows than features, and larger scores than the final one."""
    path = DATA / "clinc150_text.tsv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set BITCLASS_DATA to the folder with {path.name}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = np.array([line.rstrip("\n").split("\t") for line in lines], dtype=object)
    split, intents, texts = rows.T
    rejected = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        chosen = np.isin(intents, random.choice(np.unique(intents[split == "train"]), 12, False))
        train, test = (np.flatnonzero(chosen & (split == part)) for part in ("train", "test"))
        train = np.sort(random.permutation(train)[:600])
        classifier = TextClassifier(128, random_state=seed).fit(texts[train], intents[train])
        rejected.append(np.mean(classifier.typicality(texts[test]) < 0.1))
    assert np.mean(rejected) == pytest.approx(0.1, abs=0.03)
