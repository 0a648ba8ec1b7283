"""PackedModel: a trained classifier, reduced to what prediction needs.

Prediction encodes rows, finds the nearest classes, and rescores a short list, all in one kernel
call per block of rows: see `HashFunction.rescored`. Only NumPy and the kernels are imported, to
keep deployed predictors lightweight.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import HammingIndex
from bitclass._native.ngrams import HashedTexts, NgramFeatures, as_texts
from bitclass._native.sparse import SparseRows
from bitclass.arrays import Features, are_texts, as_features, is_on_gpu, on_host
from bitclass.codes import unpack
from bitclass.hash_function import FeatureBlock, HashFunction

# Scores that are computed at once.
_SCORES_PER_BLOCK = 1 << 22
# Texts per kernel call, so that Ctrl-C is handled between calls.
_TEXTS_PER_CALL = 1 << 16
# Far less than 1 / 127, the smallest difference between scores on a short list.
_TIE = 1e-9


class TopClasses(NamedTuple):
    """The best classes of rows: see `PackedModel.top_classes`.

    Attributes
    ----------
    labels : (n, k)
        Best first.
    distances : (n, k) int32
        Hamming distances.
    probabilities : (n, k) float64, or None if not asked for
    typicality : (n,) float64, or None if not asked for
    """

    labels: NDArray[Any]
    distances: NDArray[np.int32]
    probabilities: NDArray[np.float64] | None = None
    typicality: NDArray[np.float64] | None = None


class PackedModel:
    """A trained classifier: hash function, packed class weights and labels.

    Its methods take rows `X`: array-likes or CSR matrices of shape (n, d), data frames, or n texts.

    Parameters
    ----------
    classes : (C,) labels
    weights : (C, ceil(r / 8)) uint8, packed class weights
    hash_function : HashFunction
    bias : (C,) float32, optional
        Added to the scores of the classes, such as the logarithms of their shares of the rows times
        the temperature. The search for the nearest classes rounds it to even integers.
    rescore : int
        Number of nearest classes to rank again by ``w_c.tanh(P'x + t) + bias_c``, which weights
        each bit by its certainty; 0 for none.
    temperature : float
        Probabilities are the softmax of the scores divided by `temperature`.
    typicality : (m,) float32, ascending, optional
        Best scores of rows whose classes are known, or their quantiles at the shares
        ``(i + 1/2) / m``: see the method `typicality`.
    reject, unknown_label : optional
        What `predict` does with rows of no known class, unless it is told otherwise; by default
        nothing.
    summary : mapping, optional
        JSON-serialisable training summary, saved in model files.
    text : NgramFeatures, optional
        Converts texts into rows; every `X` may then also be a list of n str or bytes.

    Attributes
    ----------
    n_bits, n_features : int
        Number of bits r per code, and of features d per row.

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

    def __init__(
        self,
        classes: NDArray[Any],
        weights: NDArray[np.uint8],
        hash_function: HashFunction,
        *,
        bias: NDArray[np.float32] | None = None,
        rescore: int = 0,
        temperature: float = 1.0,
        typicality: NDArray[np.float32] | None = None,
        reject: float = 0.0,
        unknown_label: Any = None,
        summary: Mapping[str, Any] | None = None,
        text: NgramFeatures | None = None,
    ) -> None:
        self.classes = classes
        self.hash_function = hash_function
        self.n_bits, self.n_features = hash_function.n_bits, hash_function.n_features
        self.rescore = rescore
        self.temperature = temperature
        self.typicality_table = _checked_table(typicality)
        self.reject, self.unknown_label = reject, unknown_label
        self._last_rejection: tuple[Any, Any, Any] = (None, None, None)
        self.summary = dict(summary or {})
        self.text = None if text is None else self._of_columns(text)
        if bias is not None:
            bias = np.ascontiguousarray(bias, dtype=np.float32)
        self._index = HammingIndex(weights, bias)
        self._searched = self._index
        #: Folder of the file that the model was loaded from, in which its embedding is looked for.
        self.folder: str | None = None

    def _of_columns(self, text: NgramFeatures) -> NgramFeatures:
        """N-gram features of the columns that the hash function uses."""
        columns = self.hash_function.columns
        if text.n_columns != self.n_features or columns is None:
            wide = "" if columns is None else " wide"
            raise ValueError(
                f"text must have the {self.n_features} columns of a hash function of wide rows, "
                f"found {text.n_columns} and one of{wide} rows of {self.n_features} features"
            )
        return text.only(columns)

    @cached_property
    def embedding(self) -> Any:
        """The sentence embeddings that the model was fitted on, or None; see `docs/text.md`."""
        from bitclass.embeddings import recorded_embeddings

        return recorded_embeddings(self.summary, self.folder)

    @property
    def n_probe(self) -> int | None:
        """Number of class clusters that a search visits; None, the default, searches all classes.

        Setting a number groups the C classes into about ``4 sqrt(C)`` clusters, which takes seconds
        for a million classes. `predict`, and `top_classes` up to the length of the short list, then
        visit only the clusters nearest to a row, and may miss a class. This pays off for single
        rows and several hundred thousand classes: see docs/accuracy.md for time and recall. It is
        not saved in model files.
        """
        return self._searched.n_probe

    @n_probe.setter
    def n_probe(self, n_probe: int | None) -> None:
        if n_probe is None:
            self._searched = self._index
        elif isinstance(n_probe, int | np.integer) and n_probe >= 1 and n_probe is not True:
            self._searched = HammingIndex(self.weights, self.bias, int(n_probe))
        else:
            raise ValueError(f"n_probe must be None or a positive integer, found {n_probe!r}")
        self.__dict__.pop("_blank", None)

    @property
    def n_rescored(self) -> int:
        """Length of the short list, at most the number of classes; 0 for none."""
        return min(self.rescore, len(self.classes))

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Packed class weights, (C, ceil(r / 8))."""
        return self._index.weights

    @property
    def bias(self) -> NDArray[np.float32] | None:
        """Biases of the class scores, (C,), or None."""
        return self._index.bias

    @property
    def even_bias(self) -> NDArray[np.int32] | None:
        """Biases rounded to even integers, as the search for the nearest classes adds them."""
        return self._index.even_bias

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, under the name that scikit-learn's estimators have for them."""
        return self.classes

    @property
    def partial_fit(self) -> NoReturn:
        """Packed models only predict: this raises an AttributeError that says how to add rows."""
        raise AttributeError(
            "a packed model only predicts; to add rows, load the estimator with "
            "BinaryCodeClassifier.load(path), or TextClassifier.load(path) if it takes texts, from "
            "a file that was saved with sums=True"
        )

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the model was fitted on rows with feature names."""
        names = self.summary.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def nbytes(self) -> int:
        """Size in bytes of the arrays that prediction needs, except the labels."""
        parts = (self.weights, self.hash_function, self.bias, self.typicality_table, self.text)
        return sum(part.nbytes for part in parts if part is not None)

    def replaced(self, **changes: Any) -> PackedModel:
        """The same model with other values of some parameters of `PackedModel`.

        Of n-gram features `text`, which must be those of the rows that the model was fitted on, the
        columns are kept that the hash function uses.
        """
        names = ("classes", "weights", "hash_function", "bias", "rescore", "temperature", "reject",
                 "unknown_label", "summary", "text")  # fmt: skip
        given = {name: getattr(self, name) for name in names}
        given["typicality"] = self.typicality_table
        model = PackedModel(**(given | changes))
        model.n_probe, model.folder = self.n_probe, self.folder
        return model

    def unpacked_weights(self) -> NDArray[np.int8]:
        """Class weights of shape (C, r) in {-1, +1}."""
        return unpack(self.weights, self.n_bits)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes h(x) of rows, of shape (n, ceil(r / 8)), uint8."""
        return self.hash_function.encode(self._rows(X))

    def predict(
        self, X: ArrayLike, *, reject: float | None = None, unknown_label: Any = None
    ) -> NDArray[Any]:
        """Predict the nearest class, or the best of the rescored short list.

        Ties go to the nearer class, then to the lowest class index.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            An array on a GPU, of a library that supports DLPack, is predicted there with torch, and
            so are its integer labels; the other methods copy it to the host.
        reject : float in [0, 1], optional
            Rows with a `typicality` below it get `unknown_label`: about this share of the rows that
            do belong to the classes, and more of those that do not. By default the attribute
            `reject`, which is 0 unless the model was fitted with another value.
        unknown_label : label, optional
            A string for labels that are strings, a number for numbers; by default the attribute
            `unknown_label`. If that is None, too, and `reject` is positive, the labels are returned
            as Python objects.

        Returns
        -------
        ndarray of shape (n,)
        """
        reject = self.reject if reject is None else reject
        if reject == 0:
            if is_on_gpu(X) and self.hash_function.is_linear:
                from bitclass.device import predict  # imports torch

                return predict(self, X)
            return self.classes[self._best(self._rows(X))[0]]
        unknown_label = self.unknown_label if unknown_label is None else unknown_label
        dtype, least = self._rejection(reject, unknown_label)
        indices, best = self._best_with_scores(X)
        if len(indices) < len(self.classes):
            labels = self.classes[indices].astype(dtype)
        else:
            labels = self.classes.astype(dtype)[indices]
        labels[best < least] = unknown_label
        return labels

    def _rejection(self, reject: float, unknown_label: Any) -> tuple[np.dtype[Any], np.float32]:
        """The type of labels with an `unknown_label`, and the least score that is not rejected.

        Those of the last call are kept: finding them takes as long as predicting a hundred rows.
        """
        if not (isinstance(reject, (int, float, np.number)) and 0 <= reject <= 1):
            raise ValueError(f"reject must be a number from 0 to 1, found {reject!r}")
        known_reject, known_label, found = self._last_rejection
        if found is not None and reject == known_reject and unknown_label is known_label:
            return found
        dtype = dtype_with(self.classes, unknown_label)
        self._check_typicality()
        # The score of that typicality: faster than the typicality of all scores.
        table, shares = self._quantiles()
        above_all = np.nextafter(table[-1], np.float32(np.inf))
        exact = np.interp(reject, shares, table, right=above_all)
        least = np.float32(exact)
        if least < exact:  # scores are float32: none of them lies between
            least = np.nextafter(least, np.float32(np.inf))
        self._last_rejection = (reject, unknown_label, (dtype, least))
        return dtype, least

    def best_scores(self, X: ArrayLike) -> NDArray[np.float32]:
        """The largest class score of each row, of shape (n,), which falls if no class fits.

        It is ``w_c.tanh(P'x + t) + bias_c`` of the best class on the short list; without rescoring
        ``w_c.h(x)`` plus the bias rounded to an even integer. It is -inf for texts and sparse rows
        without any known feature.
        """
        return self._best_with_scores(X)[1]

    def typicality(self, X: ArrayLike) -> NDArray[np.float64]:
        """How typical rows are of the classes that the model knows, from 0 to 1, of shape (n,).

        It is the share of rows of known classes, not used to fit the model, whose best score is
        below that of the row. Rows of known classes have values spread evenly from 0 to 1; a row of
        no known class has a value near 0. It is 0 for texts and sparse rows without any known
        feature.
        """
        self._check_typicality()
        return self._typicality_of(self._best_with_scores(X)[1])

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Share of rows X whose predicted label equals that in y, of shape (n,)."""
        predicted, labels = self.predict(X), np.asarray(y)
        if labels.shape != predicted.shape:
            raise ValueError(f"y must have shape {predicted.shape}, found {labels.shape}")
        return float(np.mean(predicted == labels))

    def top_classes(
        self, X: ArrayLike, k: int, *, probabilities: bool = False, typicality: bool = False
    ) -> TopClasses:
        """The k best classes of each row, without computing all n x C scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        k : int in [1, C]
        probabilities : bool, default=False
            Whether to return the probabilities of these classes as well.
        typicality : bool, default=False
            Whether to return the typicality of the rows as well.

        Returns
        -------
        TopClasses
            The tuple ``(labels, distances, probabilities, typicality)``; the last two are None if
            not asked for. Labels are best first: the rescored short list ordered by score, then the
            others by distance and bias; ties in the order of `classes`.
        """
        if typicality:
            self._check_typicality()
        k = self._check_k(k)
        features = self._rows(X)
        indices = np.empty((features.shape[0], k), dtype=np.int64)
        distances = np.empty((features.shape[0], k), dtype=np.int32)
        shares = np.empty((features.shape[0], k)) if probabilities else None
        best = np.empty(features.shape[0], dtype=np.float32)
        max_rows = self._max_scored_rows if probabilities else features.shape[0] or 1
        for block in self.hash_function.blocks(features, max_rows):
            rows = block.rows
            indices[rows], distances[rows], best[rows] = self._top(block, k)
            if typicality:
                self._mark_blank(block.features, indices[rows, 0], best[rows])
            if shares is not None:
                odds = np.exp(self._logits(block))
                shares[rows] = np.take_along_axis(odds, indices[rows], axis=1)
                shares[rows] /= odds.sum(axis=1, keepdims=True)
        typical = self._typicality_of(best) if typicality else None
        return TopClasses(self.classes[indices], distances, shares, typical)

    def scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of all classes, of shape (n, C); the predicted class has the largest.

        Without rescoring they are the inner products ``w_c.h(x)``, plus the bias rounded to an even
        integer. With rescoring they are ``w_c.tanh(P'x + t) + bias_c`` for the classes on the short
        list; all others have lower scores, in the order of those without rescoring.
        """
        return self._blockwise(X, self._scores)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of all classes, of shape (n, C); `top_classes` returns only the best.

        Texts and sparse rows without any known feature get equal probabilities, 1 / C.
        """
        probabilities = self._blockwise(X, self._logits)
        np.exp(probabilities, out=probabilities)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, of shape (n, C), without underflow."""

        def logarithms(block: FeatureBlock) -> NDArray[np.float64]:
            logits = self._logits(block)
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            return logits

        return self._blockwise(X, logarithms)

    def explain(
        self, text: str | bytes, label: Any = None, n_ngrams: int = 10
    ) -> list[tuple[str, float]]:
        """N-grams of a text that contribute most to the score of a class.

        An n-gram in column j contributes ``value * P[j].w_c`` to ``w_c.(P'x + t)``.

        Parameters
        ----------
        text : str or bytes
        label : label of a class, optional
            By default the predicted class.
        n_ngrams : int, default=10

        Returns
        -------
        list of (str, float)
            N-grams in lower case, with a space at word boundaries, and their contributions as
            shares of the sum of absolute contributions; largest first.
        """
        if self.text is None:
            raise ValueError("explain needs a model of texts, but this one was fitted on features")
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text must be str or bytes, found {type(text).__name__}")
        if isinstance(n_ngrams, bool) or not isinstance(n_ngrams, int) or n_ngrams < 1:
            raise ValueError(f"n_ngrams must be a positive integer, found {n_ngrams!r}")
        if label is None:
            label = self.predict([text], reject=0)[0]
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
        """Export the model to an ONNX file with standard operators, written atomically.

        The graph takes ``X``, float32 of shape (n, d), and returns ``label`` (n,), ``top_labels``
        (n, k), best first, ``top_distances`` (n, k), int32 Hamming distances,
        ``top_probabilities`` (n, k), float32, and ``typicality`` (n,), float32, if the model has a
        table for it. It computes what `predict` (without rejecting) and `top_classes` do, in the
        precision of the model; rows to be rejected are told by ``typicality``. Integer labels are
        int64, floats double, all others strings. Non-finite rows are not detected. An extractor
        that computed the features from images or texts, such as a network, is not part of the
        graph, nor is `reject`, as warnings say.

        Parameters
        ----------
        path : path of the file, conventionally ``*.onnx``; an existing file is replaced
        k : int in [1, C], default=1

        Raises
        ------
        ImportError
            If `onnx` is not installed: ``pip install ".[onnx]"`` in the checkout.
        ValueError
            If `k` is out of range, the model is one of wide sparse rows or of text, or the file
            would exceed 2 GB.
        """
        # Imported here because storage imports this module, and prediction needs neither.
        from bitclass.storage.onnx_file import save_onnx

        save_onnx(self, path, self._check_k(k))

    def __repr__(self) -> str:
        return (
            f"<PackedModel: {len(self.classes):,} classes, {self.n_features:,} features, "
            f"{self.n_bits} bits, {self.hash_function.precision}>"
        )

    @property
    def _max_scored_rows(self) -> int:
        return max(1, _SCORES_PER_BLOCK // len(self.classes))

    def _best(
        self, X: Features
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, NDArray[np.int32]]:
        """Indices (n,) of the predicted classes, their scores if rescored, and distances."""
        h, index, m = self.hash_function, self._searched, self.n_rescored
        if isinstance(X, HashedTexts):
            starts = range(0, max(len(X.texts), 1), _TEXTS_PER_CALL)
            parts = [X.texts[start : start + _TEXTS_PER_CALL] for start in starts]
            found = [h.best_of_texts(X.features, part, index, m) for part in parts]
            indices, scores, distances = map(np.concatenate, zip(*found, strict=True))
            return indices, scores if m else None, distances
        if m:
            indices, scores, distances = h.rescored(X, index, m)
            return indices[:, 0], scores[:, 0], distances[:, 0]
        indices, distances = h.nearest(X, index)
        return indices, None, distances

    def _best_with_scores(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Indices (n,) of the predicted classes of rows X, and their scores."""
        rows = self._rows(X)
        indices, scores, distances = self._best(rows)
        scores = self._score_of(indices, distances) if scores is None else scores
        self._mark_blank(rows, indices, scores)
        return indices, scores

    def _score_of(
        self, indices: NDArray[np.int64], distances: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """Scores ``w_c.h(x) + e_c``, with e the biases rounded to even integers."""
        scores = self.n_bits - 2 * distances
        if self.even_bias is not None:
            scores += self.even_bias[indices]
        return scores.astype(np.float32)

    def _mark_blank(
        self, rows: Features, indices: NDArray[np.int64], best: NDArray[np.float32]
    ) -> None:
        """Set to -inf the best scores (n,) of sparse rows without any known feature."""
        if self.hash_function.columns is None:
            return
        # Others are not examined, which would take as long as to predict them.
        suspected = np.zeros(len(best), dtype=bool)
        for index, score in zip(*self._blank, strict=True):
            suspected |= (indices == index) & (best == score)
        for row in np.flatnonzero(suspected).tolist():
            if self._is_blank(SparseRows.of(rows[row : row + 1]))[0]:
                best[row] = -np.inf

    @cached_property
    def _blank(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Classes and scores of rows without features, and of texts of spaces only."""
        n = 0 if self.text is None or self.text.space_column < 0 else 2
        columns = np.full(n, -1 if self.text is None else self.text.space_column, dtype=np.int32)
        values = np.array([1.0, -1.0], dtype=np.float32)[:n]
        starts = np.concatenate([[0], np.arange(n + 1)])
        indices, scores, distances = self._best(
            SparseRows(starts, columns, values, self.n_features)
        )
        return indices, self._score_of(indices, distances) if scores is None else scores

    def _is_blank(self, rows: SparseRows) -> NDArray[np.bool_]:
        """Mask (n,) of the sparse rows without any known feature."""
        space_column = -1 if self.text is None else self.text.space_column
        return ~self.hash_function.has_columns(rows, space_column)

    def _check_typicality(self) -> None:
        if self.typicality_table is None:
            raise ValueError(
                "typicality and reject compare with rows that were not used to fit the model, and "
                "this one has no table of their scores: fit it on two rows of each class, or more"
            )

    def _typicality_of(self, best_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Shares of known rows below scores (n,), between quantiles in proportion."""
        table, shares = self._quantiles()
        return np.interp(best_scores, table, shares, left=0.0, right=1.0)

    def _quantiles(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Best scores (m,) of known rows, and the shares of these rows below them."""
        table = self.typicality_table
        assert table is not None
        return table, (np.arange(len(table)) + 0.5) / len(table)

    def _blockwise(
        self, X: ArrayLike, function: Callable[[FeatureBlock], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Apply a function to each block of features, and concatenate the results (n, C)."""
        features = self._rows(X)
        results = np.empty((features.shape[0], len(self.classes)))
        for block in self.hash_function.blocks(features, self._max_scored_rows):
            results[block.rows] = function(block)
        return results

    def _top(
        self, block: FeatureBlock, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Indices and distances (n, k) of the best classes of a block, and the best scores (n,)."""
        m = self.n_rescored
        # Classes beyond the short list are found by exact search, and so must be the list itself.
        index = self._index if 0 < m < k else self._searched
        if m:
            best, scores, best_distances = self.hash_function.rescored(block, index, m, min(k, m))
            if k <= m:
                return best, best_distances, scores[:, 0]
        found, distances = index.top_k(self.hash_function.encode(block), k)
        if not m:
            return found, distances, self._score_of(found[:, 0], distances[:, 0])
        found[:, :m], distances[:, :m] = best, best_distances
        return found, distances, scores[:, 0]

    def _scores(self, block: FeatureBlock) -> NDArray[np.float64]:
        """Scores of all classes (n, C) for a block of features."""
        codes = self.hash_function.encode(block)
        scores = self._index.scores(codes, self.n_bits).astype(np.float64)
        m = self.n_rescored
        if m:
            best, rescored, _ = self.hash_function.rescored(block, self._index, m, m)
            farthest = np.take_along_axis(scores, best, axis=1).min(axis=1, keepdims=True)
            scores += rescored[:, -1:] - farthest - 1.0
            # Ties keep the order of the list, whose first class is predicted.
            np.put_along_axis(scores, best, rescored - _TIE * np.arange(m), axis=1)
        return scores

    def _logits(self, block: FeatureBlock) -> NDArray[np.float64]:
        """Scores (n, C) divided by the temperature, minus the maximum of each row."""
        logits = self._scores(block)
        logits /= self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        # Rows without any known feature get nearly equal logits, in the same order.
        if self.hash_function.columns is not None:
            logits[self._is_blank(block.features)] *= _TIE
        return logits

    def _rows(self, X: Any) -> Features:
        if are_texts(X) and (self.text is not None or len(X)):
            if self.text is not None:
                return HashedTexts(self.text, as_texts(X))
            if self.embedding is None:
                raise ValueError(
                    f"X must have rows of {self.n_features} numbers, found texts; the model was "
                    "fitted on features"
                )
            X = self.embedding.rows(as_texts(X))
        X = on_host(X, "X")
        try:
            return as_features(X, self.n_features, self.feature_names)
        except ValueError as error:
            if self.text is None:
                raise
            first: Any = next(iter(X), None)
            if np.ndim(first) == 0:  # neither texts nor rows
                return HashedTexts(self.text, as_texts(X))  # whose error names the first
            raise ValueError(
                "X must be a list of texts, or rows of the n-gram features that the model was "
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


def _checked_table(table: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    if table is None:
        return None
    table = np.ascontiguousarray(table, dtype=np.float32)
    # Not ascending also if there is a NaN.
    if table.ndim != 1 or not len(table) or not (table[1:] >= table[:-1]).all():
        raise ValueError("typicality: expected scores in ascending order, at least one")
    if not np.isfinite(table).all():
        raise ValueError("typicality: expected finite numbers only")
    return table


def dtype_with(classes: NDArray[Any], label: Any) -> np.dtype[Any]:
    """The type of an array of labels of the classes and an `unknown_label`, which is checked."""
    kind = classes.dtype.kind
    kinds = {"i": "iu", "u": "iu", "f": "iuf", "U": "U", "S": "S", "O": "UiubO"}.get(kind, "")
    if label is None:
        return np.dtype(object)
    other = np.min_scalar_type(label)
    fits = np.ndim(label) == 0 and other.kind in kinds
    joined = np.result_type(classes.dtype, other) if fits else None
    if joined is None or joined.kind not in kinds:
        raise ValueError(
            f"unknown_label must be None or of the type of the labels, {classes.dtype}, found "
            f"{label!r}"
        )
    return joined
