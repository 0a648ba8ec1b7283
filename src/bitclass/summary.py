"""The training summary of a model: how it came about, in values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass import __version__
from bitclass.losses import resolve_loss
from bitclass.storage import ModelFileError
from bitclass.training.alternation import HISTORY_DTYPE

__all__ = [
    "restore_feature_names",
    "restore_history",
    "restore_parameters",
    "restore_refinement",
    "summarise",
]

# A dict of class weights longer than this is left out: a summary is read before anything else.
MAX_PAIRS = 10_000
# Parameters of the machine and the moment, not of the model: a file has no say in them.
_NOT_STORED = {"max_time", "n_jobs", "verbose"}


def summarise(
    parameters: Mapping[str, Any],
    loss: str,
    n_rows: int,
    history: NDArray[np.void],
    n_rounds: int,
    refinement: Mapping[str, Any] | None,
    feature_names: Iterable[str] | None,
) -> dict[str, Any]:
    """Summary of a training.

    Parameters
    ----------
    parameters : of the estimator, by name
    loss : str, name of the loss
    n_rows : int, how many rows were learned from
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int
    refinement : mapping or None, what refinement came to
    feature_names : (d,), where the features have names

    Returns
    -------
    dict
    """
    summary = {
        "bitclass": __version__,
        "loss": loss,
        "n_rows": n_rows,
        "n_rounds": n_rounds,
        "history": _last_of_each_step(history),
        "parameters": {
            name: _plain(value) for name, value in parameters.items() if name not in _NOT_STORED
        },
    }
    if refinement is not None:
        summary["refinement"] = dict(refinement)
    if feature_names is not None:
        summary["feature_names"] = [str(name) for name in feature_names]
    return summary


def restore_parameters(summary: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Those of the known parameters that a summary tells."""
    parameters = summary.get("parameters", {})
    if not isinstance(parameters, dict):
        raise ModelFileError("the summary's 'parameters' must be an object")
    return {
        name: _restored(parameters[name])
        for name in known
        if name in parameters and name not in _NOT_STORED
    }


def restore_history(summary: Mapping[str, Any], n_bits: int) -> tuple[NDArray[np.void], int]:
    """History of the objective with one entry a step, and the number of rounds."""
    n_rounds, steps = summary.get("n_rounds", 0), summary.get("history", [])
    if type(n_rounds) is not int or not isinstance(steps, list):
        raise ModelFileError("the summary's 'n_rounds' must be an integer, 'history' a list")
    history = np.empty(len(steps), dtype=HISTORY_DTYPE)
    try:
        for at, (n_round, step, value) in enumerate(steps):
            log_objective = -math.inf if value is None else float(value)
            history[at] = (int(n_round), str(step), n_bits - 1, log_objective)
    except (TypeError, ValueError, OverflowError):
        raise ModelFileError("the summary's 'history' must be [round, step, number] each") from None
    return history, n_rounds


def restore_refinement(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """What refinement came to, None where there was none."""
    refinement = summary.get("refinement")
    if refinement is not None and not isinstance(refinement, dict):
        raise ModelFileError("the summary's 'refinement' must be an object")
    return refinement


def restore_feature_names(summary: Mapping[str, Any], n_features: int) -> NDArray[Any] | None:
    """Names of the features, None where they have none."""
    names = summary.get("feature_names")
    if names is None:
        return None
    if (
        not isinstance(names, list)
        or len(names) != n_features
        or not all(isinstance(name, str) for name in names)
    ):
        raise ModelFileError(f"the summary's 'feature_names' must be a list of {n_features} texts")
    return np.array(names, dtype=object)


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
    """A parameter as JSON can hold it; what it cannot is described, and `fit` refuses that."""
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
        return resolve_loss(value).name  # never that of a loss of ours
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {shape}"


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    pairs = value.get("pairs")
    if not isinstance(pairs, list):
        raise ModelFileError("the summary's 'parameters' hold an object without 'pairs'")
    try:
        return {key: weight for key, weight in pairs}  # noqa: C416 - checks that these are pairs
    except (TypeError, ValueError):
        raise ModelFileError("the summary's 'parameters' hold 'pairs' that are none") from None
