"""The training summary of a model, JSON-serialisable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass import __version__
from bitclass.losses import loss_name
from bitclass.model import PackedModel
from bitclass.storage import ModelFileError
from bitclass.training import Fitted
from bitclass.training.alternation import HISTORY_DTYPE

__all__ = ["restore", "summarise"]

# A longer dict of class weights is not stored, to keep summaries small.
MAX_PAIRS = 10_000
# Parameters of the run rather than of the model.
_NOT_STORED = {"max_time", "n_jobs", "verbose"}


def summarise(
    parameters: Mapping[str, Any],
    fitted: Fitted,
    n_rows: int,
    feature_names: Iterable[str] | None,
) -> dict[str, Any]:
    """Create the training summary of a model.

    Parameters
    ----------
    parameters : mapping, parameters of the estimator by name
    fitted : Fitted
    n_rows : int, number of training rows
    feature_names : (d,), or None if the features have no names
    """
    summary = {
        "bitclass": __version__,
        "loss": loss_name(parameters["loss"]),
        "n_rows": n_rows,
        "n_rounds": fitted.n_rounds,
        "history": _last_of_each_step(fitted.history),
        "parameters": {
            name: _plain(value) for name, value in parameters.items() if name not in _NOT_STORED
        },
    }
    if fitted.refinement is not None:
        summary["refinement"] = dict(fitted.refinement)
    if feature_names is not None:
        summary["feature_names"] = [str(name) for name in feature_names]
    return summary


def restore(model: PackedModel, known: Iterable[str]) -> tuple[dict[str, Any], Fitted]:
    """Restore the parameters and the result of training from the summary of a model.

    Parameters
    ----------
    model : PackedModel, loaded from a file
    known : names of the estimator's parameters; others are ignored

    Returns
    -------
    parameters : dict
    fitted : Fitted
        Its history has one entry per step.
    """
    summary = model.summary
    stored, refinement = summary.get("parameters", {}), summary.get("refinement")
    n_rounds, steps = summary.get("n_rounds", 0), summary.get("history", [])
    if not isinstance(stored, dict):
        raise ModelFileError("the summary's 'parameters' must be an object")
    if refinement is not None and not isinstance(refinement, dict):
        raise ModelFileError("the summary's 'refinement' must be an object")
    if type(n_rounds) is not int or not isinstance(steps, list):
        raise ModelFileError("the summary's 'n_rounds' must be an integer, 'history' a list")
    history = np.empty(len(steps), dtype=HISTORY_DTYPE)
    try:
        for i, (n_round, step, value) in enumerate(steps):
            log_objective = -math.inf if value is None else float(value)
            history[i] = (int(n_round), str(step), model.n_bits - 1, log_objective)
    except (TypeError, ValueError, OverflowError):
        raise ModelFileError("the summary's 'history' must list [round, step, number]") from None
    names = [name for name in known if name in stored and name not in _NOT_STORED]
    parameters = {name: _restored(stored[name]) for name in names}
    return parameters, Fitted(model, history, n_rounds, refinement=refinement)


def _last_of_each_step(history: NDArray[np.void]) -> list[list[Any]]:
    """[round, step, log objective] after each step; None stands for the logarithm of 0."""
    steps: dict[tuple[int, str], float] = {}
    for entry in history:
        steps[int(entry["round"]), str(entry["step"])] = float(entry["log_objective"])
    return [
        [n_round, step, value if math.isfinite(value) else None]
        for (n_round, step), value in steps.items()
    ]


def _plain(value: Any) -> Any:
    """JSON form of a parameter; other types become a description, which `fit` rejects."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, dict) and len(value) <= MAX_PAIRS:
        pairs = [[_plain(key), _plain(weight)] for key, weight in value.items()]
        return {"pairs": pairs}
    if callable(value):
        return loss_name(value)  # never the name of a built-in loss
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {shape}"


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    pairs = value.get("pairs")
    if not isinstance(pairs, list):
        raise ModelFileError("the summary's 'parameters' contain an object without 'pairs'")
    try:
        return {key: weight for key, weight in pairs}  # noqa: C416 - checks that these are pairs
    except (TypeError, ValueError):
        raise ModelFileError("the summary's 'parameters' contain invalid 'pairs'") from None
