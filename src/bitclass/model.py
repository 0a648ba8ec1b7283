"""PackedModel: a trained classifier, with what prediction needs and nothing more.

Prediction encodes rows, finds the nearest classes, and rescores a short list. One kernel call does
all of it for a block of rows: see `HashFunction.rescored`. Only NumPy and the kernels are imported,
so that a deployed predictor stays light.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import ClusteredIndex, HammingIndex
from bitclass._native.ngrams import HashedTexts, NgramFeatures, as_texts
from bitclass.arrays import (
    Array,
    Features,
    as_features,
    is_foreign,
    like,
    memory_errors,
    namespace,
    to_host,
)
from bitclass.codes import unpack
from bitclass.device import device_search
from bitclass.hash_function import FeatureBlock, HashFunction

__all__ = ["PackedModel"]

# Entries of scores that are held at once where not all are asked for.
_SCORES_PER_BLOCK = 1 << 22
# Texts of one call into the kernels, so that Ctrl-C is handled between calls.
_TEXTS_PER_CALL = 1 << 16
# Far less than the smallest difference of two scores of a short list, 1 / 127.
_TIE = 1e-9


def _accepts_foreign_arrays(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method also take foreign arrays, for which it then returns foreign arrays.

    The scores of the bits are computed on their device, all that follows by the kernels.
    """

    @wraps(method)
    def accepting(model: PackedModel, X: Any, *arguments: Any, **options: Any) -> Any:
        if not is_foreign(X):
            return method(model, X, *arguments, **options)
        with memory_errors():
            found = method(*model.on_host(X), *arguments, **options)
        return tuple(like(p, X) for p in found) if isinstance(found, tuple) else like(found, X)

    return accepting


class PackedModel:
    """A trained classifier: a hash function, packed class weights, labels.

    Parameters
    ----------
    classes : (C,) labels
    weights : (C, ceil(r / 8)) uint8, packed class weights
    hash_function : HashFunction
    rescore : int
        How many nearest classes are ranked by ``w_c.tanh(steepness (P'x + t))``, which weighs each
        bit by how certain it is; 0 for none.
    steepness : float
    temperature : float
        Probabilities are the softmax of the scores over `temperature`.
    summary : mapping, optional
        How the model came about, in values that JSON can hold; kept in model files.
    text : NgramFeatures, optional
        What turns texts into rows; then every `X` may also be a list of n str or bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from bitclass.hash_function import HashFunction
    >>> model = PackedModel(
    ...     classes=np.array(["left", "right"]),
    ...     weights=np.array([[0], [1]], dtype=np.uint8),
    ...     hash_function=HashFunction(np.ones((1, 1), dtype=np.float32), np.zeros(1)),
    ... )
    >>> model.predict([[-3.0], [2.0]])
    array(['left', 'right'], dtype='<U5')
    """

    # Of the stand-in that `on_host` returns: which of its rows have anything the model knows.
    _known_rows: NDArray[np.bool_] | None = None

    def __init__(
        self,
        classes: NDArray[Any],
        weights: NDArray[np.uint8],
        hash_function: HashFunction,
        *,
        rescore: int = 0,
        steepness: float = 1.0,
        temperature: float = 1.0,
        summary: Mapping[str, Any] | None = None,
        text: NgramFeatures | None = None,
    ) -> None:
        self.classes = classes
        self.hash_function = hash_function
        self.rescore = rescore
        self.steepness = steepness
        self.temperature = temperature
        self.summary = dict(summary or {})
        self._set_text(text)
        self._index = HammingIndex(weights)
        self._searched = self._index

    @property
    def n_probe(self) -> int | None:
        """How many clusters of classes a search visits; None, the default, for all classes.

        Setting a number groups the classes into about four times the square root of their number
        of clusters, in seconds for a million. `predict`, and `top_classes` up to the length of the
        short list, then visit the clusters nearest to a row only, and may miss a class. It is worth
        it for single rows and several hundred thousand classes: see docs/scaling.md for time and
        recall. It is not kept in model files.
        """
        return self._searched.n_probe if isinstance(self._searched, ClusteredIndex) else None

    @n_probe.setter
    def n_probe(self, n_probe: int | None) -> None:
        if n_probe is None:
            self._searched = self._index
        elif isinstance(n_probe, int | np.integer) and n_probe >= 1 and n_probe is not True:
            self._searched = ClusteredIndex(self.weights, int(n_probe))
        else:
            raise ValueError(f"n_probe must be None or an integer of at least 1, found {n_probe!r}")

    @property
    def n_rescored(self) -> int:
        """Length of the short list, at most the number of classes; 0 for none."""
        return min(self.rescore, len(self.classes))

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Packed class weights, (C, ceil(r / 8))."""
        return self._index.weights

    @property
    def n_bits(self) -> int:
        """Number of bits r of a code."""
        return self.hash_function.n_bits

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return self.hash_function.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where the model was fitted on rows that had names."""
        names = self.summary.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that predicting needs, labels aside."""
        of_text = 0 if self.text is None else self.text.nbytes
        return self.weights.nbytes + self.hash_function.nbytes + of_text

    def with_text(self, text: NgramFeatures) -> PackedModel:
        """The same model for texts, whose rows it was fitted on.

        Parameters
        ----------
        text : NgramFeatures
            Such as the attribute `features_` of a fitted `bitclass.text.NgramHasher`.

        Returns
        -------
        PackedModel
        """
        model = copy(self)
        model.summary = dict(self.summary)
        model._set_text(text)
        return model

    def _set_text(self, text: NgramFeatures | None) -> None:
        if text is not None and text.n_columns != self.n_features:
            raise ValueError(
                f"text must have {self.n_features} columns, as many as the hash function has "
                f"features, found {text.n_columns}"
            )
        self.text = text

    def unpacked_weights(self) -> NDArray[np.int8]:
        """Class weights of shape (C, r) in {-1, +1}."""
        return unpack(self.weights, self.n_bits)

    @_accepts_foreign_arrays
    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes h(x).

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, ceil(r / 8)), uint8
        """
        return self.hash_function.encode(self._rows(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Label of the best class: the nearest one, or the best of the rescored short list.

        Among equals it is that of the lowest class index.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        if is_foreign(X):
            if not self.hash_function.is_linear:
                return like(self.predict(to_host(X)), X)
            with memory_errors():
                return device_search(self, X).predict(X, self.n_rescored, self.steepness)
        return self.classes[self._best_classes(self._rows(X))]

    @_accepts_foreign_arrays
    def top_classes(
        self, X: ArrayLike, k: int, *, probabilities: bool = False
    ) -> tuple[NDArray[Any], ...]:
        """The k best classes of each row, without an array of all n x C scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        k : int in [1, C]
        probabilities : bool, default=False
            Whether to return the probabilities of these classes as well.

        Returns
        -------
        labels : ndarray of shape (n, k)
            Best first: the rescored short list in the order of its scores, then the others by
            distance; equals in the order of `classes`.
        distances : ndarray of shape (n, k), int32
            Hamming distances.
        probabilities : ndarray of shape (n, k)
            Where asked for.
        """
        k = self._check_k(k)
        features = self._rows(X)
        indices = np.empty((features.shape[0], k), dtype=np.int64)
        distances = np.empty((features.shape[0], k), dtype=np.int32)
        shares = np.empty((features.shape[0], k)) if probabilities else None
        max_rows = self._max_scored_rows if probabilities else features.shape[0] or 1
        for block in self.hash_function.blocks(features, max_rows):
            rows = block.rows
            indices[rows], distances[rows] = self._top(block, k)
            if shares is not None:
                weights = np.exp(self._logits(block))
                shares[rows] = np.take_along_axis(weights, indices[rows], axis=1)
                shares[rows] /= weights.sum(axis=1, keepdims=True)
        if shares is None:
            return self.classes[indices], distances
        return self.classes[indices], distances, shares

    @_accepts_foreign_arrays
    def scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of all classes, the largest that of the predicted one.

        Without rescoring they are the inner products ``w_c.h(x)``. With it they are
        ``w_c.tanh(steepness (P'x + t))`` for the classes on the short list; all others are below
        these, by as much as they are farther away.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C)
        """
        return self._blockwise(X, self._scores)

    @_accepts_foreign_arrays
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities, dense: `top_classes` gives those of a few classes.

        Texts and sparse rows that have nothing the model knows get equal probabilities, 1 / C.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C)
        """
        found = self._blockwise(X, self._logits)
        np.exp(found, out=found)
        found /= found.sum(axis=1, keepdims=True)
        return found

    @_accepts_foreign_arrays
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, which do not underflow.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C)
        """

        def logarithms(block: FeatureBlock) -> NDArray[np.float64]:
            logits = self._logits(block)
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            return logits

        return self._blockwise(X, logarithms)

    def explain(
        self, text: str | bytes, label: Any = None, n_ngrams: int = 10
    ) -> list[tuple[str, float]]:
        """N-grams of a text that speak most for a class.

        An n-gram speaks for a class where the row of the projection that it selects agrees with the
        bits of the class: it adds ``value * P[column].w_c`` to ``w_c.(P'x + t)``.

        Parameters
        ----------
        text : str or bytes
        label : label of a class, optional
            By default that of the predicted class.
        n_ngrams : int, default=10

        Returns
        -------
        list of (str, float)
            N-grams in lower case, with a space at the boundary of a word, and their shares of all
            that speaks for or against the class; the largest first.
        """
        if self.text is None:
            raise ValueError("explain needs a model of texts, and this one was fitted on features")
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text must be one text, str or bytes, found {type(text).__name__}")
        if isinstance(n_ngrams, bool) or not isinstance(n_ngrams, int) or n_ngrams < 1:
            raise ValueError(f"n_ngrams must be a positive integer, found {n_ngrams!r}")
        if label is None:
            label = self.predict([text])[0]
        found = np.flatnonzero(self.classes == label)
        if len(found) != 1:
            raise ValueError(f"label must be one of the classes, found {label!r}")
        _, columns, values = self.text.rows([text])
        weights = unpack(self.weights[found], self.n_bits)[0].astype(np.float32)
        contributions = values * (self.hash_function.rows_of(columns) @ weights)
        by_column = dict(zip(columns.tolist(), contributions.tolist(), strict=True))
        shares = self.text.shares(text, by_column)
        total = sum(map(abs, shares.values())) or 1.0
        ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        return [(ngram, share / total) for ngram, share in ordered[:n_ngrams]]

    def to_onnx(self, path: str | os.PathLike[str], *, k: int = 1) -> None:
        """Write the model as an ONNX file of standard operators, whole or not at all.

        The graph takes ``X``, float32 of shape (n, d), and returns ``label`` (n,), ``top_labels``
        (n, k), best first, ``top_distances`` (n, k), int32 Hamming distances, and
        ``top_probabilities`` (n, k), float32. It computes what `predict` and `top_classes` do, in
        the precision of the model. Integer labels are int64, floats double, all others strings.
        Non-finite rows are not detected.

        Parameters
        ----------
        path : path of the file, by custom ``*.onnx``; a file that is there is replaced
        k : int in [1, C], default=1

        Raises
        ------
        ImportError
            If the library `onnx` is missing; it comes with ``pip install 'bitclass[onnx]'``.
        ValueError
            If `k` is not a number of classes, the model is one of wide sparse rows or of text, or
            the file would take more than 2 GB.
        """
        # On demand: storage knows the model, and predicting needs neither storage nor onnx.
        from bitclass.storage.onnx_file import save_onnx

        save_onnx(self, path, self._check_k(k))

    def on_host(self, X: Any) -> tuple[PackedModel, NDArray[Any]]:
        """A model and NumPy rows that stand for this one and foreign rows.

        The rows are the scores of their bits, which were computed on the device of X.
        """
        if not self.hash_function.is_linear:
            return self, to_host(X)
        model, bits = copy(self), np.eye(self.n_bits, dtype=np.float32)
        model.hash_function = HashFunction(bits, np.zeros(self.n_bits), precision="float32")
        scores = to_host(device_search(self, X).projected(X))
        if self.text is not None:
            model.text, known = None, _has_entries(X, self.text.space_column)
            model._known_rows = to_host(known)
        return model, scores

    def __repr__(self) -> str:
        return (
            f"<PackedModel: {len(self.classes):,} classes, {self.n_features:,} features, "
            f"{self.n_bits} bits, {self.hash_function.precision}>"
        )

    @property
    def _max_scored_rows(self) -> int:
        return max(1, _SCORES_PER_BLOCK // len(self.classes))

    def _best_classes(self, X: Features) -> NDArray[np.int64]:
        """Index of the predicted class (n,) of each row."""
        h, index = self.hash_function, self._searched
        if h.columns is not None and isinstance(X, HashedTexts):
            m = self.n_rescored
            starts = range(0, max(len(X.texts), 1), _TEXTS_PER_CALL)
            parts = [X.texts[start : start + _TEXTS_PER_CALL] for start in starts]
            found = [h.best_of_texts(X.features, part, index, m, self.steepness) for part in parts]
            return found[0] if len(found) == 1 else np.concatenate(found)
        if self.rescore:
            return h.rescored(X, index, self.n_rescored, 1, self.steepness)[0][:, 0]
        return h.nearest(X, index)[0]

    def _blockwise(
        self, X: ArrayLike, of_block: Callable[[FeatureBlock], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Numbers (n, C), computed block by block from the features of the rows."""
        features = self._rows(X)
        found = np.empty((features.shape[0], len(self.classes)))
        for block in self.hash_function.blocks(features, self._max_scored_rows):
            found[block.rows] = of_block(block)
        return found

    def _top(self, block: FeatureBlock, k: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Indices and distances (n, k) of the best classes of a block of features."""
        m = self.n_rescored
        # The classes behind the short list are those of an exact search, and so is then the list.
        index = self._index if 0 < m < k else self._searched
        if m:
            best, _, best_distances = self.hash_function.rescored(
                block, index, m, min(k, m), self.steepness
            )
            if k <= m:
                return best, best_distances
        found, distances = index.top_k(self.hash_function.encode(block), k)
        if m:
            found[:, :m], distances[:, :m] = best, best_distances
        return found, distances

    def _scores(self, block: FeatureBlock) -> NDArray[np.float64]:
        """Scores of all classes (n, C) for a block of features."""
        codes = self.hash_function.encode(block)
        scores = self._index.scores(codes, self.n_bits).astype(np.float64)
        m = self.n_rescored
        if m:
            best, rescored, distances = self.hash_function.rescored(
                block, self._index, m, m, self.steepness
            )
            farthest = self.n_bits - 2.0 * distances.max(axis=1, keepdims=True)
            scores += rescored[:, -1:] - farthest - 1.0
            # Equal scores stay in the order of the list, of which the first is predicted.
            np.put_along_axis(scores, best, rescored - _TIE * np.arange(m), axis=1)
        return scores

    def _logits(self, block: FeatureBlock) -> NDArray[np.float64]:
        """Scores (n, C) over the temperature, less the best of their row."""
        logits = self._scores(block)
        logits /= self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        # Of rows of which nothing is known all classes are as good as equal; their order stays.
        space_column = -1 if self.text is None else self.text.space_column
        if self._known_rows is not None:
            logits[~self._known_rows[block.rows]] *= _TIE
        elif self.hash_function.columns is not None:
            logits[~self.hash_function.has_columns(block.features, space_column)] *= _TIE
        elif self.text is not None:
            logits[~_has_entries(block.features, space_column)] *= _TIE
        return logits

    def _rows(self, X: Any) -> Features:
        if _are_texts(X) and (self.text is not None or len(X)):
            if self.text is None:
                raise ValueError(
                    f"X must have rows of {self.n_features} numbers, found texts: the model was "
                    "fitted on features"
                )
            return HashedTexts(self.text, as_texts(X))
        try:
            return as_features(X, self.n_features, self.feature_names)
        except ValueError as error:
            if self.text is None:
                raise
            raise ValueError(
                "X must be a list of texts, or their rows by the n-grams that the model was "
                f"fitted on: {error}"
            ) from None

    def _check_k(self, k: Any) -> int:
        n_classes = len(self.classes)
        try:
            number = operator.index(k)
        except TypeError:
            number = 0
        if isinstance(k, bool) or not 1 <= number <= n_classes:
            raise ValueError(
                f"k must be an integer from 1 to the number of classes, {n_classes}, found {k!r}"
            )
        return number


def _are_texts(X: Any) -> bool:
    """Whether these are texts rather than rows of numbers."""
    if isinstance(X, (str, bytes)):
        return True
    if getattr(X, "ndim", 1) != 1:
        return False
    first = next(iter(X), "") if hasattr(X, "__len__") else None
    return isinstance(first, (str, bytes))


def _has_entries(X: Array, without: int) -> Array:
    """Which rows (n,) of an array (n, d) have an entry other than 0, one column left out."""
    is_entry = X != 0
    if without >= 0:
        is_entry[:, without] = False
    return namespace(X).any(is_entry, axis=1)
