"""`verbose` in a notebook: one bar, updated after each epoch."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 20, 1500)
    return rng.standard_normal((20, 12))[y] + rng.standard_normal((1500, 12)), y


@pytest.fixture
def notebook(monkeypatch):
    """What IPython shows, while this process is the kernel of a notebook."""
    shown = []

    def display(content, display_id):
        assert display_id is True
        shown.append(content)
        return SimpleNamespace(update=shown.append)

    module, displays = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return shown


def test_each_epoch_moves_the_bar(notebook, rows):
    epochs = []
    BinaryCodeClassifier(32, refine=True, verbose=1, random_state=0).fit(
        *rows, callback=epochs.append
    )
    assert len(notebook) == len(epochs) > 1
    for content, epoch in zip(notebook, epochs, strict=True):
        assert f'value="{epoch.epoch}" max="{epoch.n_epochs}"' in content._repr_html_()
        assert f"held-out accuracy {epoch.accuracy:.2%}" in repr(content)


def test_a_callback_still_stops_refinement(notebook, rows):
    BinaryCodeClassifier(32, refine=True, verbose=1, random_state=0).fit(
        *rows, callback=lambda epoch: True
    )
    assert len(notebook) == 1


def test_without_verbose_nothing_is_shown(notebook, rows):
    BinaryCodeClassifier(32, refine=True, random_state=0).fit(*rows)
    assert notebook == []
