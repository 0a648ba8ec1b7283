"""The summary of a model: how it was trained, as JSON values in its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bitclass import __version__
from bitclass.report import Report
from bitclass.storage import ModelFileError

__all__ = ["make_summary", "read_summary"]

# A longer dict of class weights is not stored, to keep summaries small.
MAX_PAIRS = 10_000
# Parameters of the run rather than of the model.
_NOT_STORED = {"max_time", "n_jobs", "verbose"}


def make_summary(
    parameters: Mapping[str, Any],
    report: Report | None = None,
    feature_names: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Create the summary of a model.

    Parameters
    ----------
    parameters : mapping, parameters of the estimator by name
    report : Report, optional
    feature_names : (d,), or None if the features have no names
    """
    stored = {name: _plain(value) for name, value in parameters.items() if name not in _NOT_STORED}
    summary: dict[str, Any] = {"bitclass": __version__, "parameters": stored}
    if report is not None:
        summary["report"] = report.to_dict()
    if feature_names is not None:
        summary["feature_names"] = [str(name) for name in feature_names]
    return summary


def read_summary(
    summary: Mapping[str, Any], known: Iterable[str]
) -> tuple[dict[str, Any], Report | None]:
    """Restore the parameters and the report from the summary of a model, which may be untrusted.

    Parameters
    ----------
    summary : mapping
    known : names of the estimator's parameters; others are ignored

    Returns
    -------
    parameters : dict
    report : Report or None
    """
    stored = summary.get("parameters", {})
    if not isinstance(stored, dict):
        raise ModelFileError("the summary's 'parameters' must be an object")
    names = [name for name in known if name in stored and name not in _NOT_STORED]
    parameters = {name: _restored(stored[name]) for name in names}
    try:
        report = Report.from_dict(summary["report"]) if "report" in summary else None
    except ValueError as error:
        raise ModelFileError(f"the summary's 'report' is invalid: {error}") from None
    return parameters, report


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
    if isinstance(value, np.ndarray | list | tuple) and len(value) <= MAX_PAIRS:
        return {"list": np.asarray(value).tolist()}
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {shape}"


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("list"), list):
        return value["list"]
    pairs = value.get("pairs")
    if not isinstance(pairs, list):
        raise ModelFileError("the summary's 'parameters' contain an object without 'pairs'")
    try:
        return {key: weight for key, weight in pairs}  # noqa: C416 - checks that these are pairs
    except (TypeError, ValueError):
        raise ModelFileError("the summary's 'parameters' contain invalid 'pairs'") from None
