"""`verbose` in a notebook: one bar, updated after each epoch."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier


@pytest.fixture
def notebook(monkeypatch):
    """Output of IPython, with this process as the kernel of a notebook."""
    shown = []

    def update(content, *, raw):
        assert raw is True
        shown.append(content)

    def display(content, *, raw, display_id):
        assert display_id is True
        update(content, raw=raw)
        return SimpleNamespace(update=update)

    module, displays = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return shown


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize("stops", [False, True])
def test_each_epoch_updates_the_bar_and_a_callback_can_still_stop(notebook, verbose, stops):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 20, 1500)
    X = rng.standard_normal((20, 12))[y] + rng.standard_normal((1500, 12))
    epochs = []
    classifier = BinaryCodeClassifier(32, refine=True, verbose=verbose, random_state=0)
    classifier.fit(X, y, callback=lambda epoch: epochs.append(epoch) or stops)
    assert len(epochs) == 1 if stops else len(epochs) > 1
    assert len(notebook) == verbose * len(epochs)
    for content, epoch in zip(notebook, epochs, strict=bool(verbose)):
        assert f'value="{epoch.epoch}" max="{epoch.n_epochs}"' in content["text/html"]
        assert f"held-out accuracy {epoch.accuracy:.2%}" in content["text/plain"]
