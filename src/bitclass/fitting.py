"""The two ends of fitting: what the first rows set up, and what all rows teach."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass.drawing import Replay
from bitclass.learning import Settings, Solution, learn
from bitclass.losses import Loss
from bitclass.refining import refine
from bitclass.rows import Features, dense_rows, sample_rows
from bitclass.summary import summarise
from bitclass.training import Statistics, choose_anchors, standardisation, start_codes
from bitclass.validation import anchor_count

__all__ = ["solve", "start_statistics"]

# With refine="auto" fewer rows than this are not refined: too few could be held out.
_FEWEST_ROWS_TO_REFINE = 500
# Rows whose similarities to the anchors tell how these are standardised.
_ROWS_FOR_SIMILARITIES = 10_000


def start_statistics(
    parameters: Mapping[str, Any],
    loss: Loss,
    X: Features,
    labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
    initial_codes: str | NDArray[Any],
) -> Statistics:
    """Empty statistics, with anchors and starting codes set up on the first rows.

    Parameters
    ----------
    parameters : of the estimator, by name
    loss : Loss
    X : (n, d)
    labels : (n,)
    weights : (n,), or None for ones
    initial_codes : name of the starting codes, or (n, r) codes
    """
    of_rows = np.ones(len(labels)) if weights is None else weights
    kernel = parameters["kernel"] is not None
    n_anchors = anchor_count(parameters["n_anchors"], *X.shape) if kernel else 0
    centre, scale = standardisation(X, of_rows)
    random = check_random_state(parameters["random_state"])
    anchors = None
    if kernel:
        anchors = choose_anchors(X, n_anchors, parameters["gamma"], centre, scale, random)
        sample = sample_rows(X.shape[0], _ROWS_FOR_SIMILARITIES)
        X = anchors.similarities(dense_rows(X, sample))
        labels, of_rows = labels[sample], of_rows[sample]
        centre, scale = standardisation(X, of_rows)
    rows = (X, labels, of_rows, centre, scale)
    starting = start_codes(initial_codes, parameters["n_bits"], *rows, random)
    return Statistics(starting, centre, scale, not loss.closed_form, anchors)


def solve(
    parameters: Mapping[str, Any],
    statistics: Statistics,
    feature_names: Iterable[str] | None,
    settings: Settings,
    loss: Loss,
    replay: Replay | None,
    n_rows: int | None,
) -> Solution:
    """What the sums teach, and the rows where they are at hand.

    Parameters
    ----------
    parameters : of the estimator, by name
    statistics : Statistics
    feature_names : (d,), where the features have names
    settings : Settings
    loss : Loss
    replay : passes over all rows that were summed, where they are at hand
    n_rows : int, how many rows pass, or None for all that were summed

    Returns
    -------
    Solution
        Its model has the summary that a model file will hold.
    """
    batches = None if replay is None else (batch[:2] for batch in replay())
    solution = learn(statistics, settings, batches)
    wanted = parameters["refine"]
    if replay is not None and (_is_worth_it(statistics) if wanted == "auto" else wanted):
        assert solution.alpha is not None
        refined = refine(
            solution.model,
            statistics,
            replay,
            n_rows=statistics.n_rows if n_rows is None else n_rows,
            alpha=solution.alpha,
            seed=int(check_random_state(parameters["random_state"]).randint(2**31 - 1)),
            max_bytes=settings.max_bytes // 4,
            report=settings.report,
        )
        if refined is not None:
            solution = replace(solution, model=refined.model, refinement=refined.report)
        elif wanted != "auto":
            of_classes = f"{statistics.n_rows} rows of {len(solution.model.classes)} classes"
            _warn(f"of {of_classes} too few can be held out")
    elif replay is None and wanted != "auto" and wanted:
        _warn("the rows of earlier batches are gone: call fit, or solve with the rows")
    solution.model.summary = summarise(
        parameters,
        loss.name,
        statistics.n_rows,
        solution.history,
        solution.n_rounds,
        solution.refinement,
        feature_names,
    )
    return solution


def _is_worth_it(statistics: Statistics) -> bool:
    """Whether there are rows enough for a refinement that was not asked for."""
    n_classes = int(np.count_nonzero(statistics.class_weights > 0))
    return statistics.n_rows >= max(_FEWEST_ROWS_TO_REFINE, 2 * n_classes)


def _warn(why: str) -> None:
    warnings.warn(f"refine=True: the model was not refined, for {why}", UserWarning, stacklevel=5)
