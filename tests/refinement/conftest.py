"""What refinement is watched with."""

import numpy as np
import pytest

from bitclass.training.refinement import steps


@pytest.fixture
def gradients(monkeypatch):
    """The gradients of each step, in the order projection, intercept, weights."""
    found = []
    move = steps.Adam.move

    def recorded(self, values, gradient, size, step):
        found.append((np.array(gradient), size))
        move(self, values, gradient, size, step)

    monkeypatch.setattr(steps.Adam, "move", recorded)
    return found
