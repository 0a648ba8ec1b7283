"""Prediction where the rows lie: a model for torch tensors and CuPy arrays, by the array API.

Codes come from one product in float32, and the nearest classes from one product of codes and
weights, block by block. Both are exact, up to rounding of the scores P'x + t; so are ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bitclass._native.reference import MAX_ACTIVATION
from bitclass.array_api import Array, device, is_foreign, like, namespace, to_host, top_k
from bitclass.codes import packed_width

__all__ = ["DeviceModel", "check_array", "memory_errors"]

# Scores of rows and classes that are held at once.
_SCORES_PER_BLOCK = 1 << 29
# Sums of up to so many ones are exact in float16.
_EXACT_IN_FLOAT16 = 2048
_WIDTH = 64
_TIE = 1e-6

# Arrays of a model on the device that it was last used on, for as long as there is the model.
_ARRAYS: WeakKeyDictionary[Any, tuple[Any, dict[str, Array]]] = WeakKeyDictionary()


def check_array(X: Array, name: str = "X", beside: Array | None = None) -> None:
    """Refuse an array of another library that cannot be computed with, or lies elsewhere."""
    if getattr(X, "requires_grad", False):
        raise ValueError(f"{name} must not require gradients: give {name}.detach()")
    if beside is None or not is_foreign(X):
        return
    if namespace(X) is not namespace(beside) or device(X) != device(beside):
        raise ValueError(
            f"{name} must lie where X lies, on {device(beside)}, or be a NumPy array; found "
            f"{type(X).__module__.partition('.')[0]} on {device(X)}"
        )


@contextmanager
def memory_errors() -> Iterator[None]:
    """Name the argument where a device has no more memory."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise MemoryError(
            "X: the device has too little memory left; give fewer rows at a time, to partial_fit "
            f"or fit_batches where it is training ({str(error).splitlines()[0]})"
        ) from error


class DeviceModel:
    """A `PackedModel` that predicts where the rows lie, and answers in kind.

    Labels that are integers lie on the device too; others are NumPy arrays.

    Parameters
    ----------
    model : PackedModel, without kernel anchors
    X : (n, d) the rows
    """

    def __init__(self, model: Any, X: Array) -> None:
        check_array(X)
        if X.ndim != 2 or X.shape[1] != model.n_features:
            raise ValueError(f"X must have shape (n, {model.n_features}), found {tuple(X.shape)}")
        self._model = model
        self._xp = namespace(X)
        self._X = X
        place = self._xp, device(X)
        known = _ARRAYS.get(model)
        if known is None or known[0] != place:
            known = _ARRAYS[model] = place, self._arrays()
        self._at = known[1]

    def _arrays(self) -> dict[str, Array]:
        xp, hash_function = self._xp, self._model.hash_function
        centre = hash_function.centre
        if centre is None:
            centre = np.zeros(self._model.n_features, dtype=np.float32)
        P = hash_function.projection
        t = hash_function.intercept + centre.astype(np.float64) @ P.astype(np.float64)
        # A multiple of 64 classes: products of other widths take several times as long.
        padding = np.zeros((-len(self._model.classes) % _WIDTH, self._model.n_bits), dtype=np.int8)
        weights = np.concatenate([self._model.unpacked_weights(), padding])
        weights = like(weights, self._X)
        on_gpu = getattr(weights, "is_cuda", hasattr(weights, "get"))
        exact = xp.float16 if on_gpu and self._model.n_bits <= _EXACT_IN_FLOAT16 else xp.float32
        arrays = {
            "centre": like(centre, self._X),
            "P": like(P, self._X),
            "t": like(t.astype(np.float32), self._X),
            "weights": xp.astype(weights, exact),
        }
        if self._model.classes.dtype.kind in "iu":
            arrays["classes"] = like(self._model.classes, self._X)
        return arrays

    def predict(self) -> Array:
        """Labels of the best class (n,)."""
        xp = self._xp
        found = [self._top(F, 1)[0][:, 0] for F in self._blocks()]
        return self._labels(xp.concat(found))

    def top_classes(self, k: int, probabilities: bool) -> tuple[Array, ...]:
        """Labels and distances (n, k) of the best classes, and their probabilities if wanted."""
        xp = self._xp
        indices, distances, shares = [], [], []
        for F in self._blocks():
            best, apart = self._top(F, k)
            indices.append(best)
            distances.append(xp.astype(apart, xp.int32))
            if probabilities:
                of_all = xp.exp(self._log_softmax(self._scores(F)))
                shares.append(xp.take_along_axis(of_all, best, axis=1))
        found = self._labels(xp.concat(indices)), xp.concat(distances)
        return (*found, xp.concat(shares)) if probabilities else found

    def scores(self) -> Array:
        """Scores of all classes (n, C), float32."""
        return self._xp.concat([self._scores(F) for F in self._blocks()])

    def predict_log_proba(self) -> Array:
        """Logarithms of the class probabilities (n, C), float32."""
        return self._xp.concat([self._log_softmax(self._scores(F)) for F in self._blocks()])

    def encode(self) -> Array:
        """Packed codes (n, ceil(r / 8)), uint8."""
        xp, n_bits = self._xp, self._model.n_bits
        width = packed_width(n_bits)
        powers = like(2 ** (np.arange(n_bits) % 8), self._X)
        byte_of_bit = np.arange(n_bits)[:, None] // 8 == np.arange(width)
        gather = like(byte_of_bit.astype(np.float32), self._X)
        # Sums of powers of two up to 255 are exact in float32.
        values = [
            (xp.astype(F >= 0, xp.float32) * xp.astype(powers, xp.float32)) @ gather
            for F in self._blocks()
        ]
        return xp.astype(xp.concat(values), xp.uint8)

    def _blocks(self) -> Iterator[Array]:
        """Scores of the bits (m, r) float32, for blocks of rows."""
        xp, X, at = self._xp, self._X, self._at
        step = max(1, _SCORES_PER_BLOCK // max(len(self._model.classes), self._model.n_features))
        for start in range(0, max(X.shape[0], 1), step):
            block = X[start : min(start + step, X.shape[0]), :]
            block = block if block.dtype == xp.float64 else xp.astype(block, xp.float32, copy=False)
            block = block - xp.astype(at["centre"], block.dtype, copy=False)
            F = xp.astype(block, xp.float32, copy=False) @ at["P"]
            F += at["t"]
            if not bool(xp.isfinite(xp.sum(F))):
                wrong = ~xp.isfinite(xp.sum(F, axis=1))
                if bool(xp.any(wrong)):
                    row = start + int(xp.argmax(xp.astype(wrong, xp.int8)))
                    raise ValueError(f"X must be finite: row {row} has NaN or infinity")
            yield F

    def _products(self, F: Array) -> Array:
        """Inner products (m, C) of codes and class weights: integers, in a type that holds them."""
        xp, weights = self._xp, self._at["weights"]
        codes = xp.astype(F >= 0, weights.dtype) * 2 - 1
        products = codes @ weights.T
        products[:, len(self._model.classes) :] = -self._model.n_bits - 2  # no class at all
        return products

    def _nearest(self, F: Array, k: int) -> tuple[Array, Array]:
        """Indices and distances (m, k) of the nearest classes."""
        best, products = top_k(self._products(F), k, self._model.n_bits + 2)
        return best, (self._model.n_bits - products) // 2

    def _short_list(self, F: Array) -> tuple[Array, Array, Array]:
        """Indices, scores and distances of the rescored classes, best first."""
        xp, model = self._xp, self._model
        best, apart = self._nearest(F, model.n_rescored)
        # Real-valued codes in the steps that the kernels take.
        real = xp.round(float(MAX_ACTIVATION) * xp.tanh(F * model.steepness))
        flat = xp.take(self._at["weights"], xp.reshape(best, (-1,)), axis=0)
        listed = xp.reshape(flat, (*best.shape, model.n_bits))
        products = listed * xp.astype(real, flat.dtype)[:, None, :]
        scores = xp.sum(products, axis=2, dtype=xp.float32) / float(MAX_ACTIVATION)
        order = xp.argsort(scores, axis=1, descending=True, stable=True)
        found = [xp.take_along_axis(values, order, axis=1) for values in (best, scores, apart)]
        return found[0], found[1], found[2]

    def _top(self, F: Array, k: int) -> tuple[Array, Array]:
        """Indices and distances (m, k) of the best classes."""
        m = self._model.n_rescored
        if not m:
            return self._nearest(F, k)
        best, _, apart = self._short_list(F)
        if k > m:
            others, farther = self._nearest(F, k)
            best = self._xp.concat([best, others[:, m:]], axis=1)
            apart = self._xp.concat([apart, farther[:, m:]], axis=1)
        return best[:, :k], apart[:, :k]

    def _scores(self, F: Array) -> Array:
        """Scores of all classes (m, C): see `PackedModel.scores`."""
        xp, model = self._xp, self._model
        scores = xp.astype(self._products(F)[:, : len(model.classes)], xp.float32)
        if model.n_rescored:
            best, rescored, apart = self._short_list(F)
            farthest = xp.astype(xp.max(apart, axis=1, keepdims=True), xp.float32)
            scores = scores + (rescored[:, -1:] - (model.n_bits - 2.0 * farthest) - 1.0)
            classes = xp.arange(scores.shape[1], device=device(F))[None, :]
            for j in range(model.n_rescored):
                listed = classes == best[:, j : j + 1]
                scores = xp.where(listed, rescored[:, j : j + 1] - _TIE * j, scores)
        return scores

    def _log_softmax(self, scores: Array) -> Array:
        xp = self._xp
        scores = scores / self._model.temperature
        scores = scores - xp.max(scores, axis=1, keepdims=True)
        return scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))

    def _labels(self, indices: Array) -> Array | NDArray[Any]:
        if "classes" not in self._at:
            return self._model.classes[to_host(indices)]
        flat = self._xp.take(self._at["classes"], self._xp.reshape(indices, (-1,)), axis=0)
        return self._xp.reshape(flat, indices.shape)
