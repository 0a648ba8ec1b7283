"""Python blocks of README and docs run as they stand, page by page.

The blocks of a page share a namespace and a folder, which start with the names and files below, or
with those of the quick start, where a page continues it.
Blocks after a comment ``<!-- not run: REASON -->``, and those that need a running service, are
compiled only.
"""

import contextlib
import copy
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bitclass.codes import hamming

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "start").glob("*.md"))
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?```python\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.slow


def blocks(page):
    """Python blocks of a page, and whether they are run."""
    return [
        (code, not skipped and "tritonclient" not in code)
        for skipped, code in BLOCK.findall(page.read_text())
    ]


def continues_quick_start(page):
    """Whether a page says so."""
    return "continue the [quick start]" in page.read_text()


@pytest.fixture(scope="module")
def after_quick_start(tmp_path_factory):
    """Folder and names of the quick start, for the pages that continue it."""
    folder, names = tmp_path_factory.mktemp("quick_start"), {}
    with contextlib.chdir(folder):
        for code, is_run in blocks(ROOT / "docs" / "start" / "quick-start.md"):
            if is_run:
                exec(code, names)
    return folder, names


@pytest.fixture
def namespace(tmp_path, monkeypatch):
    """Names that the other pages suppose, in a folder with the files that they read."""
    pytest.importorskip("pyarrow")
    from bitclass import BinaryCodeClassifier

    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {label}" for label in y])
    classifier = BinaryCodeClassifier(64, keep_sums=True, refine=False, random_state=0)
    classifier.fit(X[:1000], names[:1000]).save("model.safetensors")
    with open("train.csv", "w") as file:
        file.write(",".join([*(f"x{i}" for i in range(64)), "label"]) + "\n")
        for row, label in zip(X[:300], names, strict=False):
            file.write(",".join([*map(str, row), label]) + "\n")
    return {
        "np": np,
        "X": X[:1000],
        "y": names[:1000],
        "X_test": X[1400:],
        "y_test": names[1400:],
        "classifier": classifier,
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, namespace, after_quick_start, tmp_path):
    found = blocks(page)
    if not found:
        pytest.skip("no Python blocks")
    if continues_quick_start(page):
        folder, names = after_quick_start
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        namespace = names | {"classifier": copy.deepcopy(names["classifier"])}
    for number, (code, is_run) in enumerate(found):
        program = compile(code, f"{page.name}, block {number}", "exec")
        if is_run:
            exec(program, namespace)
    assert os.listdir()


@pytest.mark.parametrize("library", ["faiss", "usearch"])
def test_other_libraries_find_the_codes_at_their_hamming_distances(library, namespace):
    """The recipes of the page on similarity search."""
    found = [code for code, _ in blocks(ROOT / "docs" / "similarity.md")]
    for code in (found[0], *(code for code in found if f"{library}." in code)):
        exec(code, namespace)
    codes, queries = namespace["codes"], namespace["queries"]
    if library == "usearch":
        rows, distances = namespace["matches"].keys, namespace["matches"].distances
    else:
        rows, distances = namespace["rows"], namespace["distances"]
    every = hamming(queries[:, None], codes[None])
    np.testing.assert_array_equal(np.take_along_axis(every, rows.astype(int), 1), distances)
    nearest = np.sort(every, axis=1)[:, :10]
    assert np.mean(distances == nearest) > (0.9 if library == "usearch" else 0.999)


def test_most_blocks_are_run():
    found = [is_run for page in PAGES for _, is_run in blocks(page)]
    assert sum(found) > 2 * len(found) / 3
