"""Prediction on the device of the rows: the kernels' computations through the array API.

Codes come from one product of rows and projection, and the nearest classes from one product of
codes and weights, which is exact, including ties.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bitclass._native.prediction import QUANTISED_MAX
from bitclass.arrays import (
    Array,
    check_array,
    device,
    like,
    matmul,
    matmul_operand,
    namespace,
    take,
    to_host,
    top_k,
)

__all__ = ["DeviceSearch", "device_search"]

# Classes per group: the best of each group are compared first.
_GROUP, _PART = 32, 8
# Products of codes and weights, and values of X, that are processed at once.
_PRODUCTS_PER_BLOCK, _VALUES_PER_BLOCK = 1 << 29, 1 << 28
# Sums of up to this many ones are exact in float16, and integers up to this in float32.
_EXACT_IN_FLOAT16, _EXACT_IN_FLOAT32 = 2048, 1 << 24

# Rows are centred if the mean of a feature is farther from 0 than this, in standard deviations.
_MAX_DEVIATIONS_FROM_0 = 4.0

# One entry per model, for the device that it was last used on.
_CACHE: WeakKeyDictionary[Any, tuple[Any, DeviceSearch]] = WeakKeyDictionary()


def device_search(model: Any, X: Array) -> DeviceSearch:
    """The arrays of a linear `PackedModel` on the device of the rows X, which are checked."""
    check_array(X)
    if X.ndim != 2 or X.shape[1] != model.n_features:
        raise ValueError(f"X must have shape (n, {model.n_features}), found {tuple(X.shape)}")
    place = namespace(X), device(X)
    cached = _CACHE.get(model)
    if cached is None or cached[0] != place:
        cached = _CACHE[model] = place, DeviceSearch(model, X)
    return cached[1]


class DeviceSearch:
    """The arrays of a model on the device of the rows: see `device_search`."""

    def __init__(self, model: Any, X: Array) -> None:
        self._xp, self._device, self._classes = namespace(X), device(X), model.classes
        self._n_classes, self._n_bits = len(model.classes), model.n_bits
        if model.classes.dtype.kind in "iu":
            self._classes = like(model.classes, X)
        h, self._centre = model.hash_function, None
        P, t, self._in_float32 = h.projection, h.intercept, h.precision == "float32"
        scale = 1.0 if h.scale is None else h.scale
        if h.centre is not None and (np.abs(h.centre) > _MAX_DEVIATIONS_FROM_0 * scale).any():
            # Centred rows are smaller, so rounding changes them less.
            t = t + h.centre.astype(np.float64) @ P.astype(np.float64)
            self._centre = like(h.centre, X)
        self._intercept = like(t.astype(np.float32), X)
        self._projection = like(P, X) if self._in_float32 else matmul_operand(like(P, X))
        self._weights = like(model.unpacked_weights().astype(np.float32), X)
        # Consecutive classes form a group. In a product, the members of a group are a whole row of
        # groups apart, which makes comparing them four times faster.
        self._n_groups = -(-self._n_classes // (_GROUP * _PART)) * _PART
        order = np.arange(self._n_groups * _GROUP).reshape(-1, _GROUP).T.ravel()
        self._grouped = take(self._weights, order.clip(max=self._n_classes - 1))
        on_gpu = getattr(X, "is_cuda", hasattr(X, "get"))
        if on_gpu and self._n_bits <= _EXACT_IN_FLOAT16:
            self._grouped = self._xp.astype(self._grouped, self._xp.float16)

    def projected(self, X: Array) -> Array:
        """Scores of the bits (n, r) float32; their signs are the codes."""
        xp, step = self._xp, max(1, _VALUES_PER_BLOCK // X.shape[1])
        blocks = []
        for start in range(0, max(X.shape[0], 1), step):
            Z = X[start : min(start + step, X.shape[0]), :]
            Z = Z if Z.dtype == xp.float64 else xp.astype(Z, xp.float32, copy=False)
            if self._centre is not None:
                Z = Z - xp.astype(self._centre, Z.dtype, copy=False)
            Z = xp.astype(Z, xp.float32, copy=False) if self._in_float32 else matmul_operand(Z)
            blocks.append(matmul(Z, self._projection) + self._intercept)
        F = xp.concat(blocks) if len(blocks) > 1 else blocks[0]
        if not bool(xp.all(xp.isfinite(F))):
            row = int(xp.argmax(xp.astype(~xp.isfinite(xp.sum(F, axis=1)), xp.int8)))
            raise ValueError(f"X must be finite: row {row} has NaN, infinity or too large a number")
        return F

    def predict(self, X: Array, n_rescored: int) -> Array:
        """Labels (n,) of the best classes: integers on the device, all others in NumPy."""
        xp, F = self._xp, self.projected(X)
        if not F.shape[0]:
            return self._classes[:0]
        step, blocks = max(1, _PRODUCTS_PER_BLOCK // self._n_classes), []
        for start in range(0, F.shape[0], step):
            part = F[start : min(start + step, F.shape[0]), :]
            best = self.nearest(part, max(n_rescored, 1))
            if n_rescored:
                best = self._rescored(part, best)
            blocks.append(best[:, 0])
        indices = xp.concat(blocks)
        if isinstance(self._classes, np.ndarray):
            return self._classes[to_host(indices)]
        return take(self._classes, indices)

    def nearest(self, F: Array, k: int) -> Array:
        """Indices (n, k) of the nearest classes, ties by lowest index."""
        xp, weights = self._xp, self._grouped
        codes = xp.astype(F >= 0, weights.dtype) * 2 - 1
        products = xp.reshape(codes @ weights.T, (F.shape[0], _GROUP, self._n_groups))
        # Padding classes in the last groups.
        first, rest = divmod(self._n_classes, _GROUP)
        products[:, rest:, first : first + 1] = products[:, :, first + 1 :] = -self._n_bits - 2
        # The k best classes are in the k groups with the best maxima.
        groups = xp.arange(self._n_groups, device=self._device)[None, :]
        if k < self._n_groups:
            groups = self._first_best(xp.max(products, axis=1), groups, k, self._n_groups)
            products = xp.take_along_axis(products, groups[:, None, :], axis=2)
        within = xp.arange(_GROUP, dtype=xp.float32, device=self._device)[:, None]
        classes = xp.astype(groups, xp.float32)[:, None, :] * _GROUP + within
        products, classes = (xp.reshape(part, (part.shape[0], -1)) for part in (products, classes))
        return self._first_best(products, classes, k, self._n_groups * _GROUP)

    def _rescored(self, F: Array, listed: Array) -> Array:
        """Index (n, 1) of the best of the listed classes (n, k), by real-valued codes."""
        xp = self._xp
        # Rounded as in the kernels.
        real = xp.round(float(QUANTISED_MAX) * xp.tanh(F))
        weights = take(self._weights, xp.reshape(listed, (-1,)))
        weights = xp.reshape(weights, (*listed.shape, self._n_bits))
        places = xp.arange(listed.shape[1], device=self._device)[None, :]
        scores, largest = (weights @ real[:, :, None])[:, :, 0], self._n_bits * QUANTISED_MAX
        best = self._first_best(scores, places, 1, listed.shape[1], largest)
        return xp.take_along_axis(listed, best, axis=1)

    def _first_best(
        self, scores: Array, places: Array, k: int, n_places: int, largest: int | None = None
    ) -> Array:
        """Places (n, k) of the largest integer scores (n, w), ties by lowest place.

        Score and place are combined into unique keys, which are compared. No absolute score exceeds
        `largest`, by default that of the products.
        """
        xp, base = self._xp, 1 << (n_places - 1).bit_length()
        largest = self._n_bits + 2 if largest is None else largest
        dtype = xp.float32 if (largest + 1) * base < _EXACT_IN_FLOAT32 else xp.float64
        keys = xp.astype(scores, dtype) * base + (base - 1 - xp.astype(places, dtype))
        if keys.shape[1] >= 2 * _PART * k and keys.shape[1] % _PART == 0:  # again the best parts
            parts = xp.reshape(keys, (keys.shape[0], _PART, -1))
            best = top_k(xp.max(parts, axis=1), k)[1]
            keys = xp.reshape(xp.take_along_axis(parts, best[:, None, :], axis=2), (-1, _PART * k))
        keys = top_k(keys, k)[0]
        return xp.astype(base - 1 - (keys - xp.floor(keys / base) * base), xp.int64)
