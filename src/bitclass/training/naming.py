"""Training on numbers for labels, so that a model does not depend on the names of its classes.

Random numbers are assigned to classes in their order, and equal choices go to the first of them. In
the order of their names, classes would give another model when they are renamed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bitclass.model import PackedModel
from bitclass.training.candidate import Fitted
from bitclass.training.fit import fit_model
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected

# More may be rounding errors.
_DIGITS = 12


def fit_named(settings: Settings, collected: Collected, before: Fitted | None = None) -> Fitted:
    """Learn a model as `fit_model` does, with its classes in an order that their rows give."""
    classes, seen = collected.classes, collected.masses() > 0
    places = np.empty(len(classes), dtype=np.intp)
    order = _order(collected)
    places[order] = np.arange(len(order))
    if not isinstance(settings.prior, str):  # shares of the classes that have rows
        shares = np.zeros(len(classes))
        shares[seen] = settings.prior
        settings = replace(settings, prior=shares[order][seen[order]])
    if before is not None:
        known = np.isin(before.model.classes, classes)
        if known.all():
            numbers = places[np.searchsorted(classes, before.model.classes)]
            before = replace(before, model=_with_classes(before.model, numbers))
        else:  # some were removed
            before = None
    fitted = fit_model(settings, collected.renamed(places), before)
    return replace(fitted, model=_with_classes(fitted.model, classes[order[fitted.model.classes]]))


def _order(collected: Collected) -> NDArray[np.intp]:
    """Indices of the classes (C,), in the order of the skewness of their means.

    It is the same for rows, columns and classes in any order. Equally skewed ones are in the order
    of their labels. Sums of squares would be equal if there are two classes of equal size.
    """
    skewness = collected.skewness_of_classes()
    size = np.abs(skewness).max(initial=0.0) or 1.0
    return np.argsort(np.round(skewness / size, _DIGITS), kind="stable")


def _with_classes(model: PackedModel, labels: NDArray[np.generic]) -> PackedModel:
    """The same model with other labels, in their order."""
    order = np.argsort(labels, kind="stable")
    bias = None if model.bias is None else model.bias[order]
    return model.replaced(classes=labels[order], weights=model.weights[order], bias=bias)
