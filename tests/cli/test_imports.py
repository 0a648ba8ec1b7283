"""Commands import only what they need: `--version` and `--help` are fast."""

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

import bitclass as library
from bitclass.cli.app import COMMANDS

from ..text_models import sentences
from .running import environment, problem, succeed

HEAVY = ("sklearn", "scipy", "pandas", "pyarrow", "PIL", "dask", "matplotlib", "onnxruntime")


def imported(*arguments, **options):
    """Heavy modules that a run imports."""
    code = f"""
import json, sys
from bitclass.cli import main
sys.argv[0] = "bitclass"
try:
    main()
finally:
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("serve", "--help")])
def test_help_and_version_import_nothing_heavy(arguments):
    assert imported(*arguments) == []


def test_predict_and_inspect_do_not_import_scikit_learn(tmp_path):
    X, y = problem(60, 6)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    library.BinaryCodeClassifier(16, refine=False).fit(X, y).save(tmp_path / "m")
    assert "sklearn" not in imported("predict", "m", "train.npz", cwd=tmp_path)
    assert imported("inspect", "m", cwd=tmp_path) == []


def test_a_sentence_is_classified_without_the_training_libraries(tmp_path):
    texts, labels = sentences()
    library.TextClassifier(64).fit(texts, labels).save(tmp_path / "m")
    assert imported("predict", "m", "will it rain in oslo", cwd=tmp_path) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_agrees_with_their_help(name):
    module = importlib.import_module(f"bitclass.cli.{name}")
    assert module.command.__doc__.splitlines()[0] == COMMANDS[name]


def test_the_package_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "bitclass", "--version"], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == succeed("--version") == f"bitclass {library.__version__}\n"


def test_a_service_needs_neither_scipy_nor_scikit_learn(tmp_path):
    """The image of packaging/Dockerfile has neither, nor Pillow."""
    pytest.importorskip("starlette", reason="serving needs the extra serve")
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import bitclass.cli.serve, bitclass.serving
from bitclass.serving import Service, load_model
Service({{"m": load_model("m", "m")}})
"""
    X, y = problem(60, 6)
    library.BinaryCodeClassifier(16, refine=False).fit(X, y).save(tmp_path / "m")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
