"""Smaller projections of wide rows: four bits per entry, and fewer columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from bitclass.training.closed_form import ENTRIES_LEFT
from bitclass.training.refine import Candidate, Judged
from bitclass.training.sums import Sums

#: Makes a candidate smaller.
Compaction = Callable[[Candidate], Candidate]

# Shares of the columns that may be kept, smallest first.
_KEPT_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
# Of fewer rows, too few judge to see which columns other rows will miss.
_MIN_ROWS_TO_PRUNE = 10_000
# Rise of the `loss` from which on the judged rows miss columns, or more than four bits. Noise of
# rounding costs likelihood before it costs accuracy.
_MAX_LOSS_OF_COLUMNS, _MAX_LOSS_OF_ROUNDING = 0.02, 0.05


def compactions(sums: Sums) -> list[tuple[list[Compaction], float]]:
    """Ways to make a candidate smaller, the smallest first, and the `loss` each may cost."""
    shares = _KEPT_SHARES if sums.n_rows >= _MIN_ROWS_TO_PRUNE else ()
    fewer = [partial(with_columns, sums=sums, share=share) for share in shares]
    return [([in_four_bits], _MAX_LOSS_OF_ROUNDING), (list(fewer), _MAX_LOSS_OF_COLUMNS)]


def loss(judged: Judged) -> float:
    """Mean negative log-likelihood of the judged rows, in nats."""
    likelihoods = judged.log_likelihoods(judged.temperature)
    return -float(np.average(likelihoods, weights=judged.weights))


def in_four_bits(candidate: Candidate) -> Candidate:
    """The candidate with four bits per entry of the projection."""
    return replace(candidate, hash_function=candidate.hash_function.in_few_bits(4))


def with_columns(candidate: Candidate, sums: Sums, share: float) -> Candidate:
    """The candidate, of wide rows, with the given share of its columns, those that matter most.

    A column adds its mean square times that of its row of P to the variance of the bit scores. If
    rows would be left with few entries, all columns are kept: judged rows cannot tell what is lost
    with a column that occurs once.
    """
    h = candidate.hash_function
    assert h.columns is not None
    variance = np.einsum("kr,kr->k", h.projection, h.projection) * sums.squares[h.columns]
    kept = np.argsort(-variance, kind="stable")[: math.ceil(share * len(variance))]
    if sums.counts[h.columns[kept]].sum() < ENTRIES_LEFT * sums.n_rows:
        return candidate
    return replace(candidate, hash_function=h.with_columns(np.sort(kept)))
