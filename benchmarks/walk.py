"""How far one walks through `src/bitclass` to read what the main calls do: `make walk`.

For each walk: the files passed, the functions called, and how often the next function to be read,
in the order of first calls, is in another file. Then the sizes of the source.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import scipy.sparse
import typer
import uvicorn
from sklearn.datasets import load_digits

import bitclass
from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.cli import main
from bitclass.cli.app import COMMANDS
from bitclass.paper import PaperClassifier
from bitclass.serving.app import Service
from bitclass.serving.limits import Limits
from bitclass.serving.models import ServedModel
from bitclass.serving.server import configuration, listen

ROOT = Path(__file__).parents[1]
SOURCE = str(Path(bitclass.__file__).parent)
CONSTANT = r"^_?[A-Z][A-Z0-9_]*(, _?[A-Z][A-Z0-9_]*)*(: [^=]+)? = "


passed: dict[CodeType, None] | None = None  # in the order of first calls


def note(frame: FrameType, event: str, argument: Any) -> None:
    """Note the function that is called, if it is ours."""
    code = frame.f_code
    is_ours = code.co_filename.startswith(SOURCE)
    is_function = not code.co_name.startswith("<")  # no module, lambda or comprehension
    if passed is not None and event == "call" and is_ours and is_function:
        passed[code] = None


def walk(name: str, work: Callable[[], Any]) -> None:
    """Do some work, and print what it passed."""
    global passed
    passed = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        work()
    files = [code.co_filename for code in passed]
    passed = None
    changes = sum(first != second for first, second in itertools.pairwise(files))
    print(f"{name:24} {len(set(files)):5} {len(files):9} {changes:7}")


def command(*arguments: str) -> None:
    sys.argv = ["bitclass", *arguments]
    with contextlib.suppress(SystemExit):
        main()


@contextlib.contextmanager
def serving(model: PackedModel) -> Iterator[int]:
    """Serve a model in a thread; yields the port."""
    listener, limits = listen("127.0.0.1", 0), Limits()
    service = Service({"digits": ServedModel("digits", model)}, limits=limits)
    server = uvicorn.Server(configuration(service, limits))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def request(port: int, body: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def walks(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    wide = scipy.sparse.random(1000, 3000, 0.01, "csr", np.float32, random_state=0)
    wide_y = np.arange(1000) % 10
    table, path = folder / "digits.csv", folder / "new.safetensors"
    names = ",".join(f"f{column}" for column in range(64)) + ",label"
    np.savetxt(table, np.column_stack([X, y]), "%d", ",", header=names, comments="")
    fitted = BinaryCodeClassifier(random_state=0).fit(X, y)
    later = BinaryCodeClassifier(random_state=0).partial_fit(X[:900], y[:900])
    body = json.dumps({"rows": X[:1].tolist()})
    print(f"{'walk':24} {'files':>5} {'functions':>9} {'changes':>7}")
    walk("fit", lambda: BinaryCodeClassifier(random_state=0).fit(X, y))
    walk("fit, wide rows", lambda: BinaryCodeClassifier(random_state=0).fit(wide, wide_y))
    walk("partial_fit and solve", lambda: later.partial_fit(X[900:], y[900:]).solve())
    walk("PaperClassifier.fit", lambda: PaperClassifier(random_state=0).fit(X, y))
    walk("bitclass fit file.csv", lambda: command("fit", str(table), "--model", str(path)))
    assert path.exists()
    walk("predict", lambda: fitted.predict(X))
    with serving(fitted.packed()) as port:
        walk("HTTP request", lambda: request(port, body))


def count(folder: str, suffixes: tuple[str, ...], pattern: str = "") -> int:
    """Number of lines of source files, or of those that match a pattern."""
    texts = (path.read_text() for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)
    return sum(bool(re.search(pattern, line)) for text in texts for line in text.splitlines())


def options() -> int:
    """Number of options of all commands, without --help."""
    app = typer.Typer()
    for name in COMMANDS:
        app.command(name)(import_module(f"bitclass.cli.{name}").command)
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    found = [each.param_type_name for one in commands for each in one.params]
    return found.count("option")


def sizes() -> None:
    cpp, training = (".cpp", ".hpp", ".h"), "src/bitclass/training"
    for name, value in {
        "lines of Python in src": count("src", (".py",)),
        "lines of C++ in native": count("native", cpp),
        "lines of Python in tests": count("tests", (".py",)),
        "classes in training": count(training, (".py",), "^class "),
        "constants in training": count(training, (".py",), CONSTANT),
        "parameters": len(BinaryCodeClassifier().get_params()),
        "commands": len(COMMANDS),
        "options of all commands": options(),
    }.items():
        print(f"{name:24} {value:5,}")


if __name__ == "__main__":
    sys.setprofile(note)
    threading.setprofile(note)
    with tempfile.TemporaryDirectory() as name:
        walks(Path(name))
    sys.setprofile(None)
    sizes()
