"""Prediction on a GPU, with torch; arrays of other libraries come and go by DLPack.

Codes come from one product of rows and projection, and the nearest classes from one product of
codes and weights, which is exact, including ties. With CUDA, rows are rounded to bfloat16, less
coarse than the integers of the kernels, and are not clipped.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from bitclass._native.prediction import QUANTISED_MAX

Tensor = Any  # torch, which is optional, need not be installed to check types

# Classes per group: the best of each group are compared first.
_GROUP, _PART = 32, 8
# Products of codes and weights, and values of X, that are processed at once.
_PRODUCTS_PER_BLOCK, _VALUES_PER_BLOCK = 1 << 29, 1 << 28
# Sums of up to this many ones are exact in float16, and integers up to this in float32.
_EXACT_IN_FLOAT16, _EXACT_IN_FLOAT32 = 2048, 1 << 24
# Rows are centred if the mean of a feature is farther from 0 than this, in standard deviations.
_MAX_DEVIATIONS_FROM_0 = 4.0
# Columns beside the code, of which the first is for the bias: products want a multiple of 8.
_BIAS_COLUMNS = 8

# One entry per model, for the device that it was last used on.
_CACHE: WeakKeyDictionary[Any, DeviceModel] = WeakKeyDictionary()


def predict(model: Any, X: Any) -> Any:
    """Labels (n,) of rows on a device, for a model whose hash function is linear.

    X (n, d) is of any library that supports DLPack. Integer labels are of its library and on its
    device, all others in NumPy.
    """
    rows = X if isinstance(X, torch.Tensor) else from_dlpack(X)
    if rows.layout != torch.strided:
        raise ValueError("X must be a dense array, found a sparse tensor: pass X.to_dense()")
    if rows.requires_grad:
        raise ValueError("X must not require gradients: pass X.detach()")
    if rows.ndim != 2 or rows.shape[1] != model.n_features:
        raise ValueError(f"X must have shape (n, {model.n_features}), found {tuple(rows.shape)}")
    try:
        prepared = _CACHE.get(model)
        if prepared is None or prepared.device != rows.device:
            prepared = _CACHE[model] = DeviceModel(model, rows.device)
        indices = prepared.best_classes(rows, model.n_rescored)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"X: the device is out of memory; pass fewer rows at a time ({error})"
        ) from error
    if model.classes.dtype.kind not in "iu":
        return model.classes[indices.cpu().numpy()]
    labels = torch.asarray(model.classes, device=rows.device)[indices]
    library = type(X).__module__.partition(".")[0]
    return labels if library == "torch" else import_module(library).from_dlpack(labels)


class DeviceModel:
    """The arrays of a linear model on a device."""

    def __init__(self, model: Any, device: Any) -> None:
        self.device = device
        self._n_classes, self._n_bits = len(model.classes), model.n_bits
        h = model.hash_function
        P, t = h.projection, h.intercept
        self._centre = None
        scale = 1.0 if h.scale is None else h.scale
        if h.centre is not None and (np.abs(h.centre) > _MAX_DEVIATIONS_FROM_0 * scale).any():
            # Centred rows are smaller, so rounding changes them less.
            t = t + h.centre.astype(np.float64) @ P.astype(np.float64)
            self._centre = self._put(h.centre)
        in_bfloat16 = device.type == "cuda" and h.precision == "int8"
        self._product_type = torch.bfloat16 if in_bfloat16 else torch.float32
        self._intercept = self._put(t.astype(np.float32))
        self._projection = self._put(P).to(self._product_type)
        # Scores and biases are integers: see HammingIndex.
        bias = np.zeros(self._n_classes) if model.bias is None else model.bias.astype(np.float64)
        even_bias = 2 * np.rint(bias / 2)
        self._weights = self._put(model.unpacked_weights().astype(np.float32))
        self._biases = self._put(np.rint(bias * QUANTISED_MAX).astype(np.float32))
        self._largest_product = self._n_bits + int(np.abs(even_bias).max()) + 2
        self._largest_score = int(QUANTISED_MAX) * (self._n_bits + int(np.abs(bias).max()) + 1)
        self._n_bias_columns = 0 if model.bias is None else _BIAS_COLUMNS
        weights = self._weights
        if self._n_bias_columns:
            columns = np.zeros((self._n_classes, self._n_bias_columns), dtype=np.float32)
            columns[:, 0] = even_bias
            weights = torch.cat([weights, self._put(columns)], dim=1)
        # Consecutive classes form a group. In a product, the members of a group are a whole row of
        # groups apart, which makes comparing them four times faster.
        self._n_groups = -(-self._n_classes // (_GROUP * _PART)) * _PART
        order = np.arange(self._n_groups * _GROUP).reshape(-1, _GROUP).T.ravel()
        self._grouped = weights[self._put(order.clip(max=self._n_classes - 1))]
        if device.type == "cuda" and self._largest_product <= _EXACT_IN_FLOAT16:
            self._grouped = self._grouped.half()

    def _put(self, values: NDArray[Any]) -> Tensor:
        return torch.asarray(np.ascontiguousarray(values), device=self.device)

    def bit_scores(self, X: Tensor) -> Tensor:
        """Scores of the bits (n, r) float32; their signs are the codes."""
        step = max(1, _VALUES_PER_BLOCK // X.shape[1])
        blocks = []
        for start in range(0, max(X.shape[0], 1), step):
            Z = X[start : start + step]
            Z = Z if Z.dtype == torch.float64 else Z.float()
            if self._centre is not None:
                Z = Z - self._centre.to(Z.dtype)
            Z = Z.to(self._product_type)
            if self._product_type == torch.bfloat16:
                product = torch.mm(Z, self._projection, out_dtype=torch.float32)
            else:
                product = Z @ self._projection
            blocks.append(product + self._intercept)
        F = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
        is_finite = torch.isfinite(F).all(dim=1)
        if not bool(is_finite.all()):
            row = int(torch.argmin(is_finite.to(torch.int8)))
            raise ValueError(f"X must be finite: row {row} has NaN, infinity or too large a number")
        return F

    def best_classes(self, X: Tensor, n_rescored: int) -> Tensor:
        """Indices (n,) of the predicted classes."""
        F = self.bit_scores(X)
        step = max(1, _PRODUCTS_PER_BLOCK // self._n_classes)
        blocks = [torch.empty(0, dtype=torch.int64, device=self.device)]
        for start in range(0, F.shape[0], step):
            part = F[start : start + step]
            best = self.nearest(part, max(n_rescored, 1))
            blocks.append((self._rescored(part, best) if n_rescored else best)[:, 0])
        return torch.cat(blocks)

    def nearest(self, F: Tensor, k: int) -> Tensor:
        """Indices (n, k) of the nearest classes, ties by lowest index."""
        codes = (F >= 0).to(self._grouped.dtype) * 2 - 1
        if self._n_bias_columns:
            ones = torch.ones_like(codes[:, :1]).expand(-1, self._n_bias_columns)
            codes = torch.cat([codes, ones], dim=1)
        products = (codes @ self._grouped.T).reshape(F.shape[0], _GROUP, self._n_groups)
        # Padding classes in the last groups.
        first, rest = divmod(self._n_classes, _GROUP)
        products[:, rest:, first : first + 1] = -self._largest_product
        products[:, :, first + 1 :] = -self._largest_product
        # The k best classes are in the k groups with the best maxima.
        groups = torch.arange(self._n_groups, device=self.device)[None, :]
        if k < self._n_groups:
            largest = self._largest_product
            groups = _first_best(products.amax(dim=1), groups, k, self._n_groups, largest)
            products = torch.take_along_dim(products, groups[:, None, :], dim=2)
        within = torch.arange(_GROUP, device=self.device)[:, None]
        classes = (groups[:, None, :] * _GROUP + within).reshape(groups.shape[0], -1)
        products = products.reshape(products.shape[0], -1)
        n_places = self._n_groups * _GROUP
        return _first_best(products, classes, k, n_places, self._largest_product)

    def _rescored(self, F: Tensor, listed: Tensor) -> Tensor:
        """Index (n, 1) of the best of the listed classes (n, k), by real-valued codes."""
        # Rounded as in the kernels.
        real = torch.round(float(QUANTISED_MAX) * torch.tanh(F))
        scores = (self._weights[listed] @ real[:, :, None])[:, :, 0] + self._biases[listed]
        places = torch.arange(listed.shape[1], device=self.device)[None, :]
        best = _first_best(scores, places, 1, listed.shape[1], self._largest_score)
        return torch.take_along_dim(listed, best, dim=1)


def _first_best(scores: Tensor, places: Tensor, k: int, n_places: int, largest: int) -> Tensor:
    """Places (n, k) of the largest integer scores (n, w), ties by lowest place.

    Score and place are combined into unique keys, which are compared. No absolute score exceeds
    `largest`.
    """
    base = 1 << (n_places - 1).bit_length()
    dtype = torch.float32 if (largest + 1) * base < _EXACT_IN_FLOAT32 else torch.float64
    keys = scores.to(dtype) * base + (base - 1 - places.to(dtype))
    if keys.shape[1] >= 2 * _PART * k and keys.shape[1] % _PART == 0:  # again the best parts
        parts = keys.reshape(keys.shape[0], _PART, -1)
        best = torch.topk(parts.amax(dim=1), k, dim=1).indices
        keys = torch.take_along_dim(parts, best[:, None, :], dim=2).reshape(-1, _PART * k)
    keys = torch.topk(keys, k, dim=1).values
    return (base - 1 - (keys - torch.floor(keys / base) * base)).to(torch.int64)
