"""A few more rows of wide features: training continues from the present model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bitclass._native import SparseRows
from bitclass.codes import sign, unpack
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.refine import Candidate, Fitted, margin_sharpness, score_deviation
from bitclass.training.settings import Settings
from bitclass.training.steps import Objective, Schedule, SparseProjection, Steps
from bitclass.training.sums import Collected, Sample, Sums

# Rows that may be added before all are learned from again, and fewest rows in all, so that the
# judged ones were not trained on.
_MAX_ADDED, _MAX_ADDED_SHARE, _MIN_ROWS = 1000, 0.05, 15_000
# Chosen on held-out training rows of CLINC-150 with 10 new classes of 5 and of 50 rows.
_N_STEPS, _PEAK, _ROWS_PER_STEP, _NEW_ROWS_PER_STEP = 60, 0.3, 256, 32


def can_resume(settings: Settings, collected: Collected, before: Fitted) -> bool:
    """Whether few rows were added to those that a refined model of wide rows was fitted to."""
    model, report = before.model, before.report
    n_added = report.n_added + collected.n_rows - report.n_rows
    return bool(
        collected.sums.wide
        and not isinstance(collected.pool.X, np.ndarray)
        and report.refined
        and report.n_rows >= _MIN_ROWS
        and report.n_added <= n_added <= min(_MAX_ADDED, _MAX_ADDED_SHARE * collected.n_rows)
        and settings.refine is not False
        and settings.n_bits == model.n_bits
        and len(collected.classes) <= settings.learned_classes
        and np.isin(model.classes, collected.classes[collected.masses() > 0]).all()
    )


def resume(settings: Settings, model: PackedModel, sums: Sums, sample: Sample) -> Candidate:
    """Continue the refinement of a model of wide rows with rows of known or new classes.

    The columns are those of the model, and those that occur in rows of new classes, whose weights
    start from the signs of their mean scores. Rows of new classes come in every mini-batch. Sums
    and sample are those of the training rows.
    """
    h, random = model.hash_function, np.random.default_rng([settings.seed, 3])
    assert h.columns is not None
    is_new = ~np.isin(sums.classes, model.classes)
    of_classes = sp.csr_array(sums.feature_sums)
    columns = np.union1d(h.columns, of_classes[np.flatnonzero(is_new)].indices).astype(np.int32)
    sizes = np.sqrt(
        np.maximum(
            sums.squares[columns]
            / np.maximum(sums.counts[columns], 1.0)
            * (sums.n_rows / sums.total),
            1e-30,
        )
    ).astype(np.float32)
    P = np.zeros((len(columns), model.n_bits), np.float32)
    places = np.searchsorted(columns, h.columns)
    P[places] = h.projection * sizes[places, None]
    rows = sp.csr_array(sample.features()[:, columns], dtype=np.float32)
    rows.data /= sizes[rows.indices]
    deviation = score_deviation(sums.effective_rows / len(sums.classes))
    projection = SparseProjection(P, h.intercept, deviation, rows.nnz / max(rows.shape[0], 1))
    scaled = sp.diags_array(1.0 / sums.mass) @ of_classes[:, columns] @ sp.diags_array(1.0 / sizes)
    means = projection.scores(SparseRows.of(sp.csr_array(scaled, dtype=np.float32)))
    weights = sign(means)
    weights[~is_new] = unpack(model.weights, model.n_bits)[
        np.searchsorted(model.classes, sums.classes[~is_new])
    ]
    y = np.searchsorted(sums.classes, sample.labels)
    row_weights = (sample.weights / sample.weights.mean()).astype(np.float32)
    new_rows = np.flatnonzero(is_new[y])
    n_new = min(_NEW_ROWS_PER_STEP, len(new_rows))
    # The shares are those of all rows, although rows of new classes come more often: scores of
    # classes with few rows are thereby raised, as they are in many epochs over all rows.
    shares = np.bincount(y, row_weights, len(is_new)) / len(y)
    log_shares = np.log(np.maximum(shares, 1e-12)).astype(np.float32)
    objective = Objective(margin_sharpness(weights), log_shares)
    bias = np.zeros(len(is_new), np.float32)
    steps = Steps(projection, weights, means, bias, objective, Schedule(_N_STEPS, _PEAK), random)
    while not steps.finished:
        chosen = random.integers(len(y), size=_ROWS_PER_STEP - n_new)
        chosen = np.concatenate([chosen, random.choice(new_rows, n_new, replace=False)])
        steps.step(SparseRows.of(rows[chosen]), y[chosen], row_weights[chosen])
    hash_function = HashFunction(
        projection.matrix / sizes[:, None],
        projection.intercept.astype(np.float64),
        scale=sizes,
        columns=columns,
        n_features=h.n_features,
    )
    if h.entry_bits < 8:
        hash_function = hash_function.in_few_bits(h.entry_bits)
    return Candidate(hash_function, steps.weights, steps.bias, objective.sharpness[1])
