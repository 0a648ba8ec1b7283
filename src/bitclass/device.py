"""Search where the rows lie: what the kernels do for NumPy arrays, by the array API.

Codes come from one product of rows and projection, and the nearest classes from one product of
codes and weights, which is exact; so are ties.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bitclass._native.reference import MAX_ACTIVATION
from bitclass.array_api import Array, device, like, namespace, product, rounded, take

__all__ = ["DeviceSearch", "device_search"]

# Classes of one group, of which only the best is compared at first.
_GROUP = 32
# Sums of up to so many ones are exact in float16, and integers up to this in float32.
_EXACT_IN_FLOAT16, _EXACT_IN_FLOAT32 = 2048, 1 << 24

# For as long as there is the model, on the device that it was last used on.
_KNOWN: WeakKeyDictionary[Any, tuple[Any, DeviceSearch]] = WeakKeyDictionary()


def device_search(model: Any, X: Array) -> DeviceSearch:
    """The search of a `PackedModel` without kernel anchors, where X lies."""
    place = namespace(X), device(X)
    known = _KNOWN.get(model)
    if known is None or known[0] != place:
        known = _KNOWN[model] = place, DeviceSearch(model, X)
    return known[1]


class DeviceSearch:
    """The arrays of a model where the rows lie: see `device_search`."""

    def __init__(self, model: Any, X: Array) -> None:
        self._xp, self._device = namespace(X), device(X)
        self._n_classes, self._n_bits = len(model.classes), model.n_bits
        P, centre = model.hash_function.projection, model.hash_function.centre
        centre = np.zeros(len(P), dtype=np.float32) if centre is None else centre
        t = model.hash_function.intercept + centre.astype(np.float64) @ P.astype(np.float64)
        self._centre, self._intercept = like(centre, X), like(t.astype(np.float32), X)
        self._in_float32 = model.hash_function.precision == "float32"
        self._projection = like(P, X) if self._in_float32 else rounded(like(P, X))
        self._weights = like(model.unpacked_weights().astype(np.float32), X)
        # Neighbours are one group, and what is compared in a product lies a whole line apart, which
        # takes a quarter of the time. The last class fills up its group.
        self._n_groups = -(-self._n_classes // _GROUP)
        order = np.arange(self._n_groups * _GROUP).reshape(-1, _GROUP).T.ravel()
        self._grouped = take(self._weights, order.clip(max=self._n_classes - 1))
        on_gpu = getattr(self._weights, "is_cuda", hasattr(self._weights, "get"))
        if on_gpu and self._n_bits <= _EXACT_IN_FLOAT16:
            self._grouped = self._xp.astype(self._grouped, self._xp.float16)

    def projected(self, X: Array, first_row: int) -> Array:
        """Scores of the bits (n, r) float32; their signs are the codes."""
        xp = self._xp
        X = X if X.dtype == xp.float64 else xp.astype(X, xp.float32, copy=False)
        Z = xp.astype(X - xp.astype(self._centre, X.dtype, copy=False), xp.float32, copy=False)
        F = Z @ self._projection if self._in_float32 else product(rounded(Z), self._projection)
        F += self._intercept
        if not bool(xp.all(xp.isfinite(F))):
            wrong = xp.astype(~xp.isfinite(xp.sum(F, axis=1)), xp.int8)
            row = first_row + int(xp.argmax(wrong))
            raise ValueError(f"X must be finite: row {row} has NaN, infinity or a larger number")
        return F

    def encode(self, F: Array) -> Array:
        """Packed codes (n, ceil(r / 8)), uint8."""
        xp, n = self._xp, F.shape[0]
        padding = xp.zeros((n, -self._n_bits % 8), dtype=xp.bool, device=self._device)
        bits = xp.reshape(xp.concat([F >= 0, padding], axis=1), (n, -1, 8))
        values = xp.astype(bits, xp.uint8) * like(2 ** np.arange(8, dtype=np.uint8), F)
        return xp.sum(values, axis=2, dtype=xp.uint8)

    def _products(self, F: Array) -> Array:
        """Inner products (n, classes of a group, groups) of codes and class weights."""
        codes = self._xp.astype(F >= 0, self._grouped.dtype) * 2 - 1
        return self._xp.reshape(codes @ self._grouped.T, (F.shape[0], _GROUP, self._n_groups))

    def scores(self, F: Array) -> Array:
        """Inner products (n, C) of codes and class weights, float64."""
        xp, in_order = self._xp, self._xp.permute_dims(self._products(F), (0, 2, 1))
        products = xp.reshape(in_order, (F.shape[0], -1))[:, : self._n_classes]
        return xp.astype(products, xp.float64)

    def nearest(self, F: Array, k: int) -> tuple[Array, Array]:
        """Indices and Hamming distances (n, k) of the nearest classes, of equals the first."""
        xp, products = self._xp, self._products(F)
        # The best k are in those k groups whose best are the best.
        groups = xp.arange(self._n_groups, device=self._device)[None, :]
        if k < self._n_groups:
            groups, _ = self._best(xp.max(products, axis=1), groups, k, self._n_bits)
            products = xp.take_along_axis(products, groups[:, None, :], axis=2)
        within = xp.arange(_GROUP, device=self._device)[None, :, None]
        classes = xp.reshape(groups[:, None, :] * _GROUP + within, (groups.shape[0], -1))
        products = xp.reshape(products, (F.shape[0], -1))
        products = xp.where(classes < self._n_classes, products, -self._n_bits - 2)
        best, found = self._best(products, classes, k, self._n_bits + 2)
        return best, xp.astype((self._n_bits - found) / 2, xp.int32)

    def short_list(self, F: Array, m: int, k: int, steepness: float) -> tuple[Array, Array, Array]:
        """Indices, scores and distances (n, k) of the best of m classes, by real-valued codes."""
        xp = self._xp
        best, apart = self.nearest(F, m)
        # In the steps that the kernels take.
        real = xp.round(float(MAX_ACTIVATION) * xp.tanh(F * steepness))
        listed = take(self._weights, xp.reshape(best, (-1,)))
        listed = xp.reshape(listed, (*best.shape, self._n_bits))
        scores = (listed @ real[:, :, None])[:, :, 0]
        places = xp.arange(m, device=self._device)[None, :]
        order, scores = self._best(scores, places, k, self._n_bits * MAX_ACTIVATION)
        best, apart = (xp.take_along_axis(values, order, axis=1) for values in (best, apart))
        return best, scores / float(MAX_ACTIVATION), apart

    def _best(self, scores: Array, places: Array, k: int, largest: int) -> tuple[Array, Array]:
        """Places and scores (n, k) of the best, of equals the lowest places.

        Parameters
        ----------
        scores : (n, w) of integers, in any type
        places : (n or 1, w) of integers, below the number of classes and groups
        k : int
        largest : int, that no score exceeds in size
        """
        xp = self._xp
        base = 1 << (self._n_groups * _GROUP).bit_length()
        fits = (largest + 1) * base < _EXACT_IN_FLOAT32
        kind = xp.float32 if fits else xp.float64
        keys = xp.astype(scores, kind) * base + (base - 1 - xp.astype(places, kind))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(keys, torch.Tensor):
            keys = torch.topk(keys, k, dim=1).values
        else:
            keys = xp.sort(keys, axis=1, descending=True)[:, :k]
        found = xp.floor(keys / base)
        return xp.astype(base - 1 - (keys - found * base), xp.int64), found
