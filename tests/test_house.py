"""The rules of the house: which room may import which, and that the examples in docstrings hold."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import bitclass

SOURCE = Path(bitclass.__file__).parent
REPRODUCTION = Path(__file__).parents[1] / "reproduction"

# Each room may import the rooms named here, and itself.
FOUNDATION = {"codes", "rows", "_native"}
MAY_IMPORT = {
    "codes": set(),
    "rows": set(),
    "anchors": set(),
    "calibration": set(),
    "_native": {"codes"},
    "losses": set(),
    "model": FOUNDATION | {"anchors"},
    "storage": FOUNDATION | {"anchors", "model"},
    "training": FOUNDATION | {"anchors", "losses", "storage"},
    "summary": {"storage", "training", ""},
    "encoder": FOUNDATION | {"losses"},
    "validation": {"_native", "rows", "losses", "training", "learning"},
    "learning": FOUNDATION | {"losses", "model", "training", "encoder"},
    "drawing": {"rows", "training"},
    "remaining": {"codes", "training", "encoder", "drawing"},
    "refining": FOUNDATION | {"model", "training", "encoder", "drawing", "remaining"},
    "fitting": {
        "rows",
        "losses",
        "summary",
        "training",
        "learning",
        "drawing",
        "refining",
        "validation",
    },
    "predicting": FOUNDATION | {"model", "storage", "summary", "learning", "validation"},
    "classifier": FOUNDATION
    | {"blas", "losses", "training", "learning", "drawing", "fitting", "validation", "predicting"},
    "blas": {"_native"},
    "data": FOUNDATION | {"model", "classifier"},
    "streaming": {"rows", "data", "classifier", "drawing", "training", "validation"},
    "images": {"_native", "data", "storage"},
    "explore": FOUNDATION | {"model", "data", "images"},
    "distributed": FOUNDATION
    | {"anchors", "drawing"}
    | {"blas", "model", "training", "validation", "classifier", "data", "streaming"},
    "cli": FOUNDATION
    | {"losses", "model", "storage", "training", "classifier", "data", "images", "streaming", ""}
    | {"calibration", "distributed", "explore", "validation"},
}


def modules():
    return [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in MAY_IMPORT, f"{room} is a new room: say what it may import"
    for name in imported(path):
        if name.split(".")[0] == "bitclass":
            other = name.split(".")[1] if "." in name else ""
            assert other in MAY_IMPORT[room] | {room}, f"{room} may not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_is_two_rooms_in_one(path):
    assert len(path.read_text().splitlines()) <= 400


def test_the_reproduction_stands_beside_the_library_and_uses_what_every_user_may():
    """The library does not know of it, and it imports nothing but the package itself."""
    for path in (*modules(), *REPRODUCTION.glob("*.py")):
        for name in imported(path):
            if path.is_relative_to(SOURCE):
                assert name.split(".")[0] != "reproduction", path
            else:
                assert not name.startswith("bitclass."), f"{path} imports {name}"


def test_the_predictor_needs_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, bitclass.model;"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'sklearn', 'scipy', 'pandas'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_examples_in_the_docstrings_hold():
    n_examples = 0
    places = ([str(SOURCE)], "bitclass."), ([str(REPRODUCTION)], "reproduction.")
    for module in (module for place in places for module in pkgutil.walk_packages(*place)):
        if module.name.endswith("_kernels"):
            continue
        results = doctest.testmod(importlib.import_module(module.name))
        assert results.failed == 0
        n_examples += results.attempted
    assert n_examples > 10
