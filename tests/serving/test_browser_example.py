"""examples/browser: onnxruntime-web in a browser predicts the same as bitclass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import chromium, services

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "browser" / "node_modules"

pytestmark = [
    chromium.needed,
    pytest.mark.slow,
    pytest.mark.skipif(
        not PACKAGES.exists() and "CI" not in os.environ,
        reason="onnxruntime-web is not here; `make browser` installs it",
    ),
]


@pytest.fixture
def address(tmp_path):
    """The example, with its model, as its README serves it."""
    folder = tmp_path / "browser"
    shutil.copytree(ROOT / "examples" / "browser", folder)
    subprocess.run([sys.executable, folder / "make_model.py"], check=True)
    (folder / "node_modules").symlink_to(PACKAGES)
    with services.files_served(folder) as address:
        yield address


@pytest.mark.parametrize("width", [390, 1280])
def test_every_row_is_predicted_as_in_python(running, address, width):
    running.screen(width)
    running.go(address)
    shown = "document.querySelector('#result').textContent"
    running.wait_for(f"{shown}.includes('rows in') || {shown}.includes('Failed')")
    found = re.match(r"(\d+) rows in \d+ ms: (\d+) predicted as in Python", running.value(shown))
    assert found, running.value(shown)
    assert int(found[1]) == int(found[2]) > 500
    assert running.value("document.querySelectorAll('#digits figure').length") == 60
    assert running.value("document.documentElement.scrollWidth") <= width
