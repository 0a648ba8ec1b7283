"""Models in the making, how sharp their scores are before rows judge them, and what is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass.arrays import class_blocks, sample_rows
from bitclass.codes import make_distinct, pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.report import Report
from bitclass.training.closed_form import ClosedForm, best_temperature
from bitclass.training.sums import Sums

#: Short-list lengths that ``rescore="auto"`` chooses from; the first is the default.
RESCORE_LENGTHS = (16, 64)
# Margins in the softmax, in nats per logarithm of the number of classes, of a row whose bits are
# all right, against the nearest other class.
_NATS_OF_SIGNS, _NATS_OF_TANH = 1.5, 2.2
_NATS_OF_SINGLE_ROWS, _DEVIATION_OF_SINGLE_ROWS = 16.0, 0.8


@dataclass(frozen=True)
class Fitted:
    """The result of training.

    Attributes
    ----------
    model : PackedModel, with the classes that have rows
    report : Report
    """

    model: PackedModel
    report: Report


@dataclass(frozen=True)
class Candidate:
    """A model in the making.

    Attributes
    ----------
    hash_function : HashFunction
    weights : (C, r) int8
    bias : (C,) float32, of the class scores
    sharpness : float, inverse temperature of the class scores, before calibration
    """

    hash_function: HashFunction
    weights: NDArray[np.int8]
    bias: NDArray[np.float32]
    sharpness: float

    def model(
        self, classes: NDArray[Any], prior: NDArray[np.float64], prior_temperature: float
    ) -> PackedModel:
        """The model where classes have the shares `prior` (C,); see `judge.prior_temperature`."""
        weights = make_distinct(self.weights, self.weights, classes)
        bias = self.bias + np.log(prior) * prior_temperature
        bias -= bias.max()
        uneven = np.ptp(bias) > 1e-6
        return PackedModel(
            classes,
            pack(weights),
            self.hash_function,
            bias=bias.astype(np.float32) if uneven else None,
            rescore=RESCORE_LENGTHS[0],
        )


def sharpness(
    closed: ClosedForm, rows: NDArray[np.float32] | None = None, y: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Factors on the class scores in the softmax, by sign and by tanh.

    With them a row whose bits are all right exceeds the nearest other class by a given number of
    nats: classes on a line or a grid differ in few bits, so each bit counts for more. Where
    classes overlap so much that rows are less certain, their sharpness is used: that of rows drawn
    from the sums, or of given rows (m, k) of the classes `y` if these are more certain.
    """
    of_signs, of_tanh = _likely_sharpness(closed)
    if rows is not None:
        more = _likely_sharpness(closed, y, rows)
        of_signs, of_tanh = max(of_signs, more[0]), max(of_tanh, more[1])
    by_signs, by_tanh = margin_sharpness(closed.weights)
    return min(by_signs, of_signs), min(by_tanh, of_tanh)


def margin_sharpness(weights: NDArray[np.int8]) -> tuple[float, float]:
    """Factors on the class scores by which right bits exceed the nearest class by given nats."""
    n_classes, n_bits = weights.shape
    some = weights[sample_rows(n_classes, 1024)].astype(np.float32)
    agreement = some @ some.T
    np.fill_diagonal(agreement, -np.inf)
    gap = float(np.mean(n_bits - agreement.max(axis=1)))
    nats = max(math.log(n_classes), math.log(n_bits) - 1.4)
    gap = max(gap, 2.0)
    return _NATS_OF_SIGNS * nats / gap, _NATS_OF_TANH * nats / gap


def sharpness_of_random_codes(n_classes: int, n_bits: int) -> tuple[float, float]:
    """Factors as of `margin_sharpness` if half of the bits of any two codes differ."""
    nats = math.log(n_classes) / n_bits
    return _NATS_OF_SIGNS * nats, _NATS_OF_TANH * nats


def candidate_of(closed: ClosedForm) -> Candidate:
    """The closed form as a candidate."""
    hash_function = closed.whitening.hash_function(closed.Q, closed.t)
    if closed.whitening.sums.has_single_rows:
        sharp = _sharpness_of_single_rows(closed)
    else:
        sharp = _likely_sharpness(closed)[1]
    return Candidate(hash_function, closed.weights, closed.bias, sharp)


def _sharpness_of_single_rows(closed: ClosedForm) -> float:
    """Inverse temperature where each class has one row, so that nothing tells how far others are.

    Such a row exceeds the average of the other classes by a given number of nats, and classes
    differ by a given one at least: between the most likely values on four datasets of embeddings
    and CNN features (15 to 22 nats; 0.7 to 1.5 standard deviations), and letters.
    """
    some = sample_rows(len(closed.weights), 1024)
    F = _bit_scores(closed, closed.whitening.means[some])
    scores = np.tanh(F) @ closed.weights[some].astype(np.float32).T
    others = scores[~np.eye(len(some), dtype=bool)]
    exceeds = float(np.diag(scores).mean() - others.mean())
    least = _DEVIATION_OF_SINGLE_ROWS * float(others.std())
    return 1.0 / max(exceeds / _NATS_OF_SINGLE_ROWS, least, 1e-6)


def _likely_sharpness(
    closed: ClosedForm, y: NDArray[np.intp] | None = None, A: NDArray[np.float32] | None = None
) -> tuple[float, float]:
    """Inverse temperatures at which rows are most likely, by sign and tanh.

    They are rows A (m, k) of the classes `y` (m,), or are drawn from the sums.
    """
    random, n_classes = np.random.default_rng(0), len(closed.weights)
    if y is None or A is None:
        y = random.integers(n_classes, size=512)
        A = closed.whitening.draw(y, random)
    F = _bit_scores(closed, A)
    some = np.unique(np.concatenate([y, np.arange(0, n_classes, 1 + n_classes // 4096)]))
    weights = closed.weights[some].astype(np.float32)
    place = np.searchsorted(some, y)
    of_signs, of_tanh = (
        1.0 / best_temperature(values @ weights.T, place)[0]
        for values in (np.where(F >= 0, np.float32(1), np.float32(-1)), np.tanh(F))
    )
    return of_signs, of_tanh


def _bit_scores(closed: ClosedForm, A: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores F (m, r) of the bits of rows in whitened coordinates A (m, k)."""
    return np.asarray(A @ closed.Q.astype(np.float32) + closed.t.astype(np.float32))


def typical_score(closed: ClosedForm) -> float:
    """Mean of the best class scores of rows drawn from the sums."""
    random, n_classes = np.random.default_rng(0), len(closed.weights)
    A = closed.whitening.draw(random.integers(n_classes, size=512), random)
    scores = np.tanh(_bit_scores(closed, A)) @ closed.weights.astype(np.float32).T + closed.bias
    return float(scores.max(axis=1).mean())


def with_all_rows(candidate: Candidate, sums: Sums) -> Candidate:
    """A model of wide rows whose weights are the codes of the class means of all rows."""
    hash_function = candidate.hash_function
    if hash_function.columns is None:
        return candidate
    weights = np.empty_like(candidate.weights)
    of_classes = sp.csr_array(sums.feature_sums)[:, hash_function.columns]
    for part in class_blocks(len(weights)):
        scores = of_classes[part] @ hash_function.projection / sums.mass[part, None]
        weights[part] = sign(scores + hash_function.intercept)
    return replace(candidate, weights=weights)
