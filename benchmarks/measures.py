"""How good a learned classifier is: accuracy, the nearest five classes, calibration."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bitclass import BinaryCodeClassifier, CodeWarning, PackedModel
from bitclass.calibration import Calibration
from real_data import Rows

_TOP = 5


def calibration_error(probabilities: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Expected calibration error of the predicted classes.

    Predictions are put into bins of equal width by their probability; the error is the mean
    distance of a bin's mean probability from its share of right predictions, by its rows.

    Parameters
    ----------
    probabilities : (n,) of the predicted classes
    right : (n,) whether each prediction is right
    """
    calibration = Calibration()
    calibration.add(probabilities, right)
    return calibration.expected_error


def with_precision(model: PackedModel, precision: Any) -> PackedModel:
    """The same model, encoding in another precision."""
    return PackedModel(
        model.classes,
        model.weights,
        model.projection,
        model.intercept,
        centre=model.centre,
        scale=model.scale,
        precision=precision,
        anchors=model.anchors,
    )


def fit_and_measure(rows: Rows, parameters: dict[str, Any], seed: int) -> dict[str, Any]:
    """Learn from the training rows and measure on the others, as values that JSON can hold."""
    classifier = BinaryCodeClassifier(random_state=seed, **parameters)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Ten rounds are the default, and equal codes of classes are pushed apart: both are part
        # of what is measured here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CodeWarning)
        classifier.fit(rows.X, rows.y)
    seconds = time.perf_counter() - start
    probabilities = classifier.predict_proba(rows.X_test)
    right = classifier.predict(rows.X_test) == rows.y_test
    own = rows.y_test[:, None]
    k = min(_TOP, len(classifier.classes_))
    nearest, _ = classifier.top_classes(rows.X_test, k)
    rescored, _ = classifier.top_classes(rows.X_test, k, rescore=True)
    exact = with_precision(classifier.packed(), "float32").predict(rows.X_test) == rows.y_test
    return {
        "accuracy": float(right.mean()),
        "accuracy_float32": float(exact.mean()),
        "top5": float((nearest == own).any(axis=1).mean()),
        "top5_rescored": float((rescored == own).any(axis=1).mean()),
        "top1_rescored": float((rescored[:, 0] == rows.y_test).mean()),
        "calibration_error": calibration_error(probabilities.max(axis=1), right),
        "seconds": round(seconds, 3),
        "alpha": classifier.alpha_,
        "refinement": classifier.refinement_,
    }
