"""Rules of the code base: the direction of imports, and correct docstring examples."""

import ast
import doctest
import importlib.util
import pkgutil
from pathlib import Path

import bitclass

SOURCE = Path(bitclass.__file__).parent

# Each module or package may import those named here, and itself: imports point one way.
FOUNDATION = {"arrays", "codes", "_native", "_warn"}
MODEL = FOUNDATION | {"device", "embeddings", "hash_function", "model", "report", "storage"}
LEARNING = MODEL | {"labels", "training"}
ESTIMATOR = LEARNING | {"predictor", "checks", "classifier"}
FILES = MODEL | {"classifier", "training", "io", "images"}
MAY_IMPORT = {
    "_warn": set(),
    "_native": {"codes"},
    "arrays": {"device"},  # when it is given a tensor only
    "codes": {"_warn"},
    "labels": set(),
    "report": {""},
    "device": {"_native", "codes"},
    "hash_function": FOUNDATION,
    # storage when `to_onnx` is called, embeddings when such a model is given texts only
    "model": FOUNDATION | {"device", "embeddings", "hash_function", "storage"},
    "embeddings": {"storage"},
    "storage": MODEL,
    "training": LEARNING,
    "predictor": MODEL,
    "paper": MODEL | {"predictor"},
    "checks": LEARNING | {"predictor"},
    "classifier": ESTIMATOR,
    "io": FILES,
    "images": FILES,
    "text": FILES | {"checks"},
    "dask": ESTIMATOR,
    "serving": FILES | {"text"},
    "cli": ESTIMATOR | FILES | {"serving", "text", ""},
    "__main__": {"cli"},
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


def test_imports_point_one_way():
    wrong = set()
    for path in modules():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imported(path):
            if name.split(".")[0] == "bitclass":
                other = name.split(".")[1] if "." in name else ""
                if other not in MAY_IMPORT.get(room, set()) | {room}:
                    wrong.add(f"{room} may not import {other or name}")
        if room not in MAY_IMPORT:
            wrong.add(f"{room} is a new room: say what it may import")
    assert not wrong, sorted(wrong)


def test_the_examples_in_the_docstrings_are_correct():
    n_examples = 0
    for module in pkgutil.walk_packages([str(SOURCE)], "bitclass."):
        if module.name.endswith("_kernels"):
            continue
        if module.name == "bitclass.device" and importlib.util.find_spec("torch") is None:
            continue
        results = doctest.testmod(importlib.import_module(module.name))
        assert results.failed == 0
        n_examples += results.attempted
    assert n_examples > 10
