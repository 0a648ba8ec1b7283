"""`TextClassifier`: texts in, labels out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import thread_limit
from bitclass._native.ngrams import Lengths, NgramFeatures, as_texts
from bitclass.arrays import Features, are_texts
from bitclass.checks import PARAMETER_CONSTRAINTS
from bitclass.classifier import BinaryCodeClassifier
from bitclass.embeddings import SentenceEmbeddings, recorded_embeddings
from bitclass.model import PackedModel
from bitclass.storage import ModelFileError, ProjectionType
from bitclass.text.ngrams import csr_rows, fit_ngrams
from bitclass.training.candidate import Fitted
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected

Texts = Iterable[str | bytes]


class TextClassifier(BinaryCodeClassifier):
    """Classifier of texts, by their n-grams or by sentence embeddings.

    It is a `BinaryCodeClassifier` that takes texts wherever that one takes rows: a list or a column
    of str, or bytes in UTF-8. Its model file takes texts, too, without scikit-learn.

    Parameters
    ----------
    n_bits : int, default=256
        Code length.
    embedding : str, object or None, default=None
        A model of `sentence-transformers` or `model2vec` that embeds the texts; by default they are
        represented by their n-grams. Either ``"model2vec:NAME"`` or
        ``"sentence-transformers:NAME"``, with the name or folder of a model, which a saved model
        then finds again; or any object with a method `encode`, which cannot be saved.
    char_ngrams, word_ngrams : (int, int) or None, default=(1, 3) and (1, 2)
        Minimum and maximum length of n-grams of characters, within words, and of words.
    min_df : int, default=2
        N-grams that occur in fewer texts are ignored.
    alpha, refine, kernel, n_anchors, gamma, rescore, class_weight, prior
        As for `BinaryCodeClassifier`. `kernel` applies to embeddings only.
    reject, unknown_label, keep_sums, n_jobs, max_time, random_state, verbose
        As for `BinaryCodeClassifier`.

    Attributes
    ----------
    classes_, weights_, projection_, intercept_, report_, sums_
        As for `BinaryCodeClassifier`.

    Notes
    -----
    N-grams that rows not used for training do not miss are dropped, and four bits are stored per
    entry of `projection_` where they cost nothing: see docs/text.md. Document frequencies are those
    of the first batch: n-grams that do not occur in `min_df` texts of it are not learned later.

    Examples
    --------
    >>> from bitclass import TextClassifier
    >>> texts = ["book a table for two", "a table for six", "will it rain", "is there rain today"]
    >>> classifier = TextClassifier(n_bits=64, min_df=1, random_state=0)
    >>> classifier.fit(texts, ["table", "table", "weather", "weather"])
    TextClassifier(min_df=1, n_bits=64, random_state=0)
    >>> classifier.predict(["a table please", "rain tomorrow"]).tolist()
    ['table', 'weather']
    >>> classifier.explain("rain tomorrow", n_ngrams=1)[0][0].strip() in "rain"
    True
    """

    # `fit_ngrams` and the embeddings check theirs.
    _parameter_constraints: dict[str, Any] = PARAMETER_CONSTRAINTS | dict.fromkeys(
        ("embedding", "char_ngrams", "word_ngrams", "min_df"), "no_validation"
    )

    _extractor: NgramFeatures | SentenceEmbeddings

    def __init__(
        self,
        n_bits: int = 256,
        *,
        embedding: Any = None,
        char_ngrams: Lengths = (1, 3),
        word_ngrams: Lengths = (1, 2),
        min_df: int = 2,
        alpha: float | str = "auto",
        refine: bool | str = "auto",
        kernel: str | None = None,
        n_anchors: int | str = "auto",
        gamma: float | str = "scale",
        rescore: int | str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        prior: str | ArrayLike = "train",
        reject: float = 0.0,
        unknown_label: Any = None,
        keep_sums: bool = False,
        n_jobs: int | None = None,
        max_time: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_bits,
            alpha=alpha,
            refine=refine,
            kernel=kernel,
            n_anchors=n_anchors,
            gamma=gamma,
            rescore=rescore,
            class_weight=class_weight,
            prior=prior,
            reject=reject,
            unknown_label=unknown_label,
            keep_sums=keep_sums,
            n_jobs=n_jobs,
            max_time=max_time,
            random_state=random_state,
            verbose=verbose,
        )
        self.embedding = embedding
        self.char_ngrams = char_ngrams
        self.word_ngrams = word_ngrams
        self.min_df = min_df

    def predict(self, X: Texts, *, reject: float | None = None) -> NDArray[Any]:
        """Predict the class of each text.

        Parameters
        ----------
        X : iterable of n_samples str or bytes
            A list or a column, not a single text.
        reject : float in [0, 1], optional
            Texts with a `typicality` below it get `unknown_label`; by default the parameter
            `reject` of the estimator.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().predict(X, reject=reject)

    def explain(
        self, text: str | bytes, label: Any = None, n_ngrams: int = 10
    ) -> list[tuple[str, float]]:
        """N-grams of a text that contribute most to the score of a class.

        Parameters and result are those of `PackedModel.explain`.
        """
        return self.packed().explain(text, label, n_ngrams)

    def packed(self) -> PackedModel:
        """The model without the estimator: it takes texts."""
        model = super().packed()
        if isinstance(self._extractor, SentenceEmbeddings):
            model.embedding = self._extractor
            if isinstance(self.embedding, str):
                model.summary["extractor"] = self._extractor.specification()
        return model

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        projection: ProjectionType | None = None,
        sums: bool = False,
    ) -> None:
        """Save the model to a file, which takes texts: see `BinaryCodeClassifier.save`.

        By default `projection_` has the smallest type that is exact. "1bit" takes a quarter of the
        space of "int4", and costs about a point of accuracy.
        """
        if self.embedding is not None and not isinstance(self.embedding, str):
            raise ValueError(
                "a model can be saved if its embedding is given by name, such as "
                "embedding='model2vec:FOLDER', so that it is found again"
            )
        super().save(path, projection=projection, sums=sums)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load an estimator from a file written by `save`, and the sums if they are beside it.

        The file need not be trusted. An embedding that it names is used if it is cached, or in the
        folder of the file.
        """
        classifier = super().load(path)
        fitted, collected = classifier._state.fitted, classifier._state.collected
        assert fitted is not None
        model = fitted.model
        features = model.text if collected is None else collected.text
        extractor = features or recorded_embeddings(model.summary, os.path.dirname(path) or ".")
        if extractor is None:
            raise ModelFileError(f"{os.fspath(path)}: the model was not fitted on texts")
        classifier._extractor = extractor
        for name in ("char_ngrams", "word_ngrams"):
            lengths = getattr(classifier, name)
            setattr(classifier, name, None if lengths is None else tuple(lengths))
        parameters = classifier.get_params(deep=False)
        classifier._state = replace(classifier._state, parameters=parameters)
        return classifier

    # ---------------------------------------------------------------------------------------------

    def _rows_of(self, X: Texts, *, is_first: bool) -> Features:
        texts = as_texts(X)
        if is_first:
            self._set_extractor([texts])
        return self._extracted(texts)

    def _batches_of_rows(self, batches: Any) -> Callable[[], Iterator[tuple[Any, ...]]]:
        if not callable(batches):
            raise ValueError("batches must be a callable that returns a new iterator each time")

        def rows() -> Iterator[tuple[Any, ...]]:
            for texts, *others in batches():
                yield self._extracted(as_texts(texts)), *others

        self._set_extractor(texts for texts, *_ in batches())
        return rows

    def _set_extractor(self, batches: Iterable[Texts]) -> None:
        """Choose how texts become rows; n-grams are counted in all batches."""
        if self.embedding is not None:
            self._extractor = SentenceEmbeddings(self.embedding)
            return
        if self.kernel is not None:
            raise ValueError(f"kernel={self.kernel!r} needs an embedding, found embedding=None")
        self._extractor = fit_ngrams(
            batches,
            char_ngrams=self.char_ngrams,
            word_ngrams=self.word_ngrams,
            min_df=self.min_df,
        )

    def _extracted(self, texts: list[str | bytes]) -> Features:
        if isinstance(self._extractor, NgramFeatures):
            return csr_rows(self._extractor, texts)
        return self._extractor.rows(texts)

    def _start(
        self,
        settings: Settings,
        X: Features,
        weights: NDArray[np.float64],
        max_bytes: int | None = None,
    ) -> Collected:
        collected = super()._start(settings, X, weights, max_bytes)
        if isinstance(self._extractor, NgramFeatures):
            collected.text = self._extractor
        return collected

    def _learn(
        self,
        settings: Settings,
        collected: Collected,
        *,
        keep: bool,
        before: Fitted | None = None,
    ) -> None:
        super()._learn(settings, collected, keep=keep, before=before)
        fitted = self._state.fitted
        if fitted is not None and isinstance(self._extractor, NgramFeatures):
            model = fitted.model.replaced(text=self._extractor)
            self._state = replace(self._state, fitted=replace(fitted, model=model))

    @contextmanager
    def _predicting(self, X: Any) -> Iterator[tuple[PackedModel, Any]]:
        model, texts = self.solve().packed(), as_texts(X)
        if texts and not are_texts(texts):
            found = type(texts[0]).__name__
            raise TypeError(f"texts: expected str or bytes, found {found} in text 0")
        with thread_limit(self.n_jobs):
            yield model, texts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        return tags
