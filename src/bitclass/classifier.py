"""The estimator: parameters, fit and predict."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass._native import thread_limit
from bitclass._native.threads import prediction_threads, training_threads
from bitclass.arrays import Features, is_foreign, like, memory_errors, take, to_host
from bitclass.documentation import DocumentedMixin
from bitclass.model import PackedModel
from bitclass.notebook_bar import with_bar
from bitclass.storage import ModelFileError, ProjectionType
from bitclass.storage import load as load_model
from bitclass.storage import save as save_model
from bitclass.summary import restore, summarise
from bitclass.training import (
    Epoch,
    Fitted,
    Settings,
    Statistics,
    fit_model,
    start_statistics,
    update_model,
)
from bitclass.training.refinement import Batch, Rows
from bitclass.training.statistics import which_classes
from bitclass.training.wide import WideState, fit_wide, fitted_wide
from bitclass.validation import (
    ACCEPTED,
    MAX_DENSE_FEATURES,
    MAX_DENSE_FEATURES_OF_SPARSE,
    PARAMETER_CONSTRAINTS,
    check_class_count,
    check_class_weight,
    check_classes,
    check_continuation,
    check_groups,
    check_initial_codes,
    check_rows,
    is_wide,
    settings_of,
)

__all__ = ["BinaryCodeClassifier"]


@dataclass(frozen=True)
class _State:
    """What an estimator has learned, replaced as a whole.

    Attributes
    ----------
    parameters : of the estimator, as they were when rows last came
    statistics : what training continues from, or None where it was not kept
    fitted : Fitted, or None where rows have come and were never solved
    n_changes : int, of the statistics that `fitted` was learned from
    classes : (C,) labels, where there are no statistics
    """

    parameters: dict[str, Any]
    statistics: Statistics | WideState | None
    fitted: Fitted | None = None
    n_changes: int = -1
    classes: NDArray[Any] | None = None

    @property
    def is_solved(self) -> bool:
        """Whether the model knows all rows."""
        if self.fitted is None:
            return False
        return self.statistics is None or self.statistics.n_changes == self.n_changes


class BinaryCodeClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-class classifier whose codes and class weights are both bits.

    Every sample gets a code of `n_bits` bits, every class a binary weight vector, learned
    together; a new sample is hashed by ``h(x) = sign(P'x + t)`` and gets the class at the smallest
    Hamming distance, the lowest class index among equals.

    Parameters
    ----------
    n_bits : int, default=128
        Length r of the codes; 256 for accuracy closer to that of a real-valued linear model.

    loss : {"exponential", "hinge", "logistic", "squared_hinge", "crammer_singer"} or callable, \
            default="hinge"
        Loss of the margin ``m = w_c.b - w_y.b`` of each sample against each other class.
        "hinge" is the paper's, linear and solved in closed form in a single pass over the rows,
        for any number of classes. All others, the paper's "exponential" among them, compare all
        pairs of classes and take at most 4,096 of them. A callable takes an array of margins and
        returns one value each; it must not decrease.

    scale : float, default=1.0
        Factor on the margin inside the loss. 1 is the paper; about ``8 / n_bits`` makes the
        exponential loss depend on many samples and not on the worst one alone.

    initial_codes : {"discriminant", "means", "projection", "random", "cca_itq"} or array of \
            shape (n_samples, n_bits), default="discriminant"
        The codes to start from. "discriminant" rotates the directions in which the class means
        differ most, relative to the scatter within classes, and takes signs; with the hinge loss
        the hash function follows in closed form. "means" takes the signs of random projections of
        the class means, in coordinates without correlation, "projection" those of random
        projections of the standardised features of each sample, "random" one random code per
        class, "cca_itq" rotated canonical directions. An array has entries -1 and +1 and serves
        `fit` only.

    solver : {"flip", "mincut"}, default="flip"
        Solver of the binary quadratic program in one bit of all class weights: the paper's bit
        flipping, which ends in a local optimum, or a minimum cut, which finds the global one and
        needs a loss that is convex.

    max_iter : int, default=10
        Maximum number of rounds of the alternation; it ends earlier when a round changes nothing.

    alpha : float or "auto", default="auto"
        Penalty that the hash function is learned with. For discriminant codes it is added to the
        variances within classes, in units of their mean, and "auto" chooses it on the rows that
        refinement holds out. Where the hash function is a ridge regression (other starting codes,
        other losses, class weights) it is in units of the variance of each feature, and "auto"
        chooses it by generalised cross-validation.

    refine : bool or "auto", default="auto"
        Whether to improve projection and weights together on the classification loss, from where
        the alternation ended. Some rows are held out, and the refined model is taken only if it is
        at least as accurate on them as the model it started from; the probabilities are calibrated
        there. "auto" does so where there are at least 500 rows, and two per class.

    kernel : {"rbf"} or None, default=None
        With "rbf" rows are hashed by their similarities to anchors: the centres of a few rounds of
        k-means.

    n_anchors : int or "auto", default="auto"
        Number of anchors of the kernel. "auto" is 1,000, or 2,000 where rows have at most 128
        features, and all rows where those are fewer.

    gamma : {"scale", "median"} or float, default="scale"
        Width of the kernel ``exp(-gamma |x - a|^2)`` of standardised rows: "scale" is one over the
        number of features, "median" one over the median of the squared distances.

    rescore : "auto", int or False, default="auto"
        How many nearest classes are ranked by ``w_c.tanh(P'x + t)``, in which each bit counts by
        how certain it is. "auto" is 16, unless none or 64 is clearly better on the rows that
        refinement holds out. False is the paper's rule, the nearest class.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn. With them the hash function is a regression
        also from discriminant codes.

    precision : {"auto", "int8", "float32"}, default="auto"
        What new samples are encoded in. "int8" quantises rows and projection on the fly: several
        times faster, and it gives a row the same code in any batch, on any machine. It is too
        coarse for similarities to anchors, so "auto" is "float32" with a kernel, "int8" without.

    n_jobs : int or None, default=None
        Number of threads, negative as in scikit-learn, at most the cores that the process may use.
        None means what `set_num_threads` or ``BITCLASS_NUM_THREADS`` say, or else all these cores.

    max_time : float or None, default=None
        Seconds after which `fit` stops refining and keeps the best model so far. The model before
        refinement is always finished.

    random_state : int, RandomState instance or None, default=None
        Seed of the starting codes, the anchors and the refinement.

    verbose : int, default=0
        Whether to print a line after each round and each epoch of refinement, and to show a
        progress bar of refinement in notebooks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.

    weights_ : ndarray of shape (n_classes, n_bits), int8
        Class weights in {-1, +1}; 0 for classes without samples, which are never predicted.

    projection_ : ndarray of shape (n_features, n_bits), float32
        The matrix P of the hash function; with a kernel, of shape (n_anchors, n_bits).

    intercept_ : ndarray of shape (n_bits,), float64
        The offset t of the hash function.

    objective_history_ : structured ndarray
        One entry per bit update, with the fields `round`, `step` ("W" or "B"), `bit` and
        `log_objective`, the logarithm of the objective after the update. "hinge" has one entry
        per step.

    n_iter_ : int
        Number of rounds of the alternation.

    refinement_ : dict or None
        Facts about the refinement: whether it was taken, the accuracy before and after on the
        held-out rows, their number, and the epochs; None where there was none.

    alpha_ : float or None
        Penalty that the hash function was learned with; None after loading.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where all are strings.

    Notes
    -----
    `fit` keeps the sums it learned from, ``8 d^2 + 8 C d`` bytes, so that `partial_fit` can
    continue. Only losses other than "hinge" that start from codes of the samples ("projection",
    "cca_itq") keep more, ``r / 8 + 16`` bytes per sample. A pickle and a model file hold the model
    without the sums; to keep both, see `save` and `load`.

    Sparse rows of more than 2,048 features, and dense ones of more than 8,192, are learned on
    mini-batches without any sums of pairs of features. `projection_` of sparse rows then has a row
    for each feature that occurs often enough, ``packed().hash_function.columns``. `partial_fit`
    learns its first batch as `fit` does and takes later ones in by small steps, at once, so that
    the model depends on their order; with more than 2,048 classes later batches change the weights
    alone.

    The attributes describe the model as it was last solved. After `partial_fit` they do not exist
    until `solve` or a prediction has taken the new rows in.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bitclass import BinaryCodeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X[:1500], y[:1500])
    >>> bool(classifier.score(X[1500:], y[1500:]) > 0.85)
    True
    >>> labels, distances = classifier.top_classes(X[:1], k=3)
    >>> labels.shape
    (1, 3)
    """

    _parameter_constraints = PARAMETER_CONSTRAINTS

    _state: _State

    def __init__(
        self,
        n_bits: int = 128,
        *,
        loss: str | Callable[[NDArray[np.float64]], Any] = "hinge",
        scale: float = 1.0,
        initial_codes: str | ArrayLike = "discriminant",
        solver: str = "flip",
        max_iter: int = 10,
        alpha: float | str = "auto",
        refine: bool | str = "auto",
        kernel: str | None = None,
        n_anchors: int | str = "auto",
        gamma: float | str = "scale",
        rescore: int | str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        precision: str = "auto",
        n_jobs: int | None = None,
        max_time: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.scale = scale
        self.initial_codes = initial_codes
        self.solver = solver
        self.max_iter = max_iter
        self.alpha = alpha
        self.refine = refine
        self.kernel = kernel
        self.n_anchors = n_anchors
        self.gamma = gamma
        self.rescore = rescore
        self.class_weight = class_weight
        self.precision = precision
        self.n_jobs = n_jobs
        self.max_time = max_time
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(
        cls,
        n_bits: int = 128,
        *,
        loss: str | Callable[[NDArray[np.float64]], Any] = "exponential",
        **parameters: Any,
    ) -> Self:
        """The published method: its starting codes, its regression, and the nearest class.

        Parameters
        ----------
        n_bits : int, default=128
        loss : {"exponential", "hinge"}, another loss or callable, default="exponential"
        **parameters : other parameters of the estimator, which take precedence

        Returns
        -------
        BinaryCodeClassifier
            With random starting codes, a ridge regression of fixed penalty, no refinement, and the
            class at the smallest Hamming distance.

        Examples
        --------
        >>> from bitclass import BinaryCodeClassifier
        >>> BinaryCodeClassifier.paper(64, loss="hinge").rescore
        False
        """
        published: dict[str, Any] = {
            "initial_codes": "random",
            "alpha": 0.01,
            "refine": False,
            "rescore": False,
        }
        return cls(n_bits, loss=loss, **published | parameters)

    # ---------------------------------------------------------------------------------------------
    # Learning
    # ---------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        callback: Callable[[Epoch], Any] | None = None,
    ) -> Self:
        """Learn from all rows at once.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Labels of groups, such as the source of each row. Refinement then holds out whole
            groups, as scikit-learn's GroupShuffleSplit does, and judges by rows of sources that it
            has not learned from.
        callback : callable, optional
            Called after each epoch of refinement with an object that has the attributes `epoch`,
            `n_epochs`, `accuracy` (on the held-out rows) and `objective` (mean cross-entropy of
            the training rows). Refinement stops where it returns True, and the best model so far
            is kept.

        Returns
        -------
        self
            If anything is raised, the estimator is as it was before the call.
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(callback)
            X, labels, weights = check_rows(self, X, y, sample_weight, reset=True)
            check_class_weight(self.class_weight, labels)
            codes = check_initial_codes(self.initial_codes, X.shape[0], self.n_bits)
            if groups is not None:
                groups = check_groups(to_host(groups), X.shape[0])
                if is_wide(settings, codes, X):
                    raise ValueError(
                        f"groups must be None for rows of {X.shape[1]:,} features: more than "
                        f"{MAX_DENSE_FEATURES_OF_SPARSE:,} sparse or {MAX_DENSE_FEATURES:,} dense "
                        "ones are learned on mini-batches, from which single rows are held out"
                    )
            if weights is not None and not weights.all():
                counts = weights > 0
                codes = codes if isinstance(codes, str) else codes[counts]
                if groups is not None:
                    groups = np.unique(groups[counts], return_inverse=True)[1]
            batch = _with_weight(X, labels, weights)
            check_class_count(to_host(batch[1]))  # before the work
            # Rows of weight 0 may bring classes of their own.
            known = None if weights is None else np.unique(to_host(labels))
            with training_threads(self.n_jobs):
                statistics = _first_batch(settings, codes, batch, known)
                self._learn(settings, statistics, lambda: iter([batch]), groups=groups)
        return self

    def fit_batches(
        self,
        batches: Callable[[int], Iterable[tuple[Any, ...]]],
        *,
        sample: tuple[Features, ArrayLike] | None = None,
        statistics: Statistics | None = None,
        on_batch: Callable[[Statistics], None] | None = None,
        n_rows: int | None = None,
        feature_names: Sequence[str] | None = None,
        callback: Callable[[Epoch], Any] | None = None,
    ) -> Self:
        """Learn from rows that come in batches, without holding them.

        With ``refine=False`` one pass is enough; refinement passes over the rows again.

        Parameters
        ----------
        batches : callable
            Given the number of a row, yields the rows from there on, in the same order every time:
            tuples of X and y, or of X, y and sample_weight.
        sample : tuple of X and y, optional
            Rows from all over the data, which set up standardisation, anchors and starting codes;
            by default the first batch.
        statistics : Statistics, optional
            Sums over the first ``statistics.n_rows`` rows, to resume from. They are added to.
        on_batch : callable, optional
            Called with the statistics after each batch of the first pass.
        n_rows : int, optional
            How many rows ``batches(0)`` yields, where they are a sample of the rows that
            `statistics` has the sums of.
        feature_names : sequence of str, optional
            Names of the features.
        callback : callable, optional
            Called after each epoch of refinement: see `fit`.

        Returns
        -------
        self
            If anything is raised, the estimator is as it was before the call.

        Examples
        --------
        >>> import numpy as np
        >>> from bitclass import BinaryCodeClassifier
        >>> X = np.random.default_rng(0).standard_normal((600, 8))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> def batches(start):
        ...     for first in range(start, len(X), 100):
        ...         yield X[first : first + 100], y[first : first + 100]
        >>> classifier = BinaryCodeClassifier(n_bits=32, random_state=0).fit_batches(batches)
        >>> bool(classifier.score(X, y) > 0.9)
        True
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(callback, in_batches=True)
            codes = check_initial_codes(self.initial_codes, None, self.n_bits)
            self.__dict__.pop("feature_names_in_", None)
            resumed, wide = statistics is not None, False
            if statistics is not None:
                check_continuation(statistics, settings, codes)
                self.n_features_in_ = statistics.n_features
            else:
                if sample is None:
                    sample = next(iter(batches(0)), None)
                    if sample is None:
                        raise ValueError("batches must yield at least one batch, found none")
                X, y = sample[:2]
                first = _with_weight(*check_rows(self, X, y, None, reset=True))
                wide = is_wide(settings, codes, first[0])

            def checked(start_row: int) -> Iterator[Batch]:
                for X, y, *sample_weight in batches(start_row):
                    weight = sample_weight[0] if sample_weight else None
                    X, labels, weights = check_rows(self, X, y, weight, reset=False)
                    if resumed and weights is not None and not weights.all():
                        raise ValueError(
                            "sample_weight and class_weight must not be 0 where a run is resumed "
                            "from statistics, because such rows are not counted"
                        )
                    yield _with_weight(X, labels, weights)

            with training_threads(self.n_jobs):
                if wide:
                    learned = fit_wide(settings, lambda: checked(0), self.n_features_in_)
                    self._learn(settings, learned, lambda: checked(0))
                else:
                    if statistics is None:
                        statistics = start_statistics(settings, *first, codes)
                    for batch in checked(statistics.n_rows):
                        statistics.add(*batch)
                        if on_batch is not None:
                            on_batch(statistics)
                    self._learn(settings, statistics, lambda: checked(0), n_rows)
            if feature_names is not None:
                self.feature_names_in_ = np.array([str(name) for name in feature_names], object)
        return self

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a batch of rows; the model takes them in when `solve` or a prediction is next called.

        After `fit` or `fit_batches` with refinement, the refined hash function stays. New classes
        get the weights that it gives their means; known classes that gained rows do too where that
        is better; all others keep theirs. To learn the hash function anew, call `fit` with all
        rows.

        Without refinement, any split of the rows gives the model of ``fit`` with
        ``refine=False``. Kernel anchors and the starting codes "projection" and "cca_itq" are set
        up on the first batch, which should therefore be a fair sample. With such codes and another
        loss than "hinge", a row counts in the regression with the code that most of its class has.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; a batch may bring classes never seen before.
        classes : array-like of shape (n_classes,), optional
            Labels that will come, to give them a place from the start.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            If anything is raised, no row of the batch was added.
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(in_batches=True)
            codes = check_initial_codes(self.initial_codes, None, self.n_bits)
            is_first, parameters = not self.__sklearn_is_fitted__(), self.get_params(deep=False)
            X, labels, weights = check_rows(self, X, y, sample_weight, reset=is_first)
            known = check_classes(classes, labels)
            if known is None and weights is not None:
                known = np.unique(to_host(labels))
            batch = _with_weight(X, labels, weights)
            with training_threads(self.n_jobs):
                if is_first:
                    if batch[0].shape[0] == 0:
                        raise ValueError(
                            "sample_weight must be positive somewhere in the first batch"
                        )
                    self._state = _State(parameters, _first_batch(settings, codes, batch, known))
                else:
                    statistics = self._require_statistics(ValueError)
                    check_continuation(statistics, settings, codes)
                    self._state = replace(self._state, parameters=parameters)
                    statistics.add(*batch, known)
        return self

    def remove_classes(self, labels: ArrayLike) -> Self:
        """Forget classes; what their rows added to the sums is removed as far as it is known.

        Parameters
        ----------
        labels : array-like of shape (k,)
            Labels of known classes; at least two others must have samples.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        statistics, labels = self._require_statistics(ValueError), np.asarray(labels)
        stay = ~which_classes(statistics.classes, labels) & (statistics.class_weights > 0)
        if stay.sum() < 2:
            left = statistics.classes[stay].tolist()
            raise ValueError(f"labels must leave at least 2 classes with samples, found {left}")
        statistics.remove_classes(labels)
        return self

    def solve(self) -> Self:
        """Take the rows since the last call of `fit` or `solve` into the model.

        Predictions do so by themselves; reading an attribute never does.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if not self._state.is_solved:
            statistics, parameters = self._require_statistics(ValueError), self._state.parameters
            with training_threads(self.n_jobs):
                self._learn(settings_of(parameters), statistics, update=self._state.fitted)
        return self

    def _learn(
        self,
        settings: Settings,
        statistics: Statistics | WideState,
        rows: Rows | None = None,
        n_rows: int | None = None,
        groups: NDArray[np.intp] | None = None,
        update: Fitted | None = None,
    ) -> None:
        """Become fitted to the sums, and to the rows if they are available.

        A refined model to `update` keeps its hash function.
        """
        check_class_count(statistics.classes[statistics.class_weights > 0])
        if isinstance(statistics, WideState):
            fitted = fitted_wide(settings, statistics)
        elif update is not None and update.is_refined:
            fitted = update_model(settings, update, statistics)
        else:
            fitted = fit_model(settings, statistics, rows, n_rows, groups)
        if settings.rescore is not None:  # an updated model has the short list of its refinement
            fitted.model.rescore = settings.rescore
        parameters = self._state.parameters if rows is None else self.get_params(deep=False)
        self._state = _State(parameters, statistics, fitted, statistics.n_changes)

    @property
    def statistics_(self) -> Statistics | WideState:
        """The sums over all rows seen, from which `partial_fit` continues."""
        check_is_fitted(self)
        statistics = self._require_statistics(AttributeError)
        if isinstance(statistics, Statistics):
            statistics.to_host()
        return statistics

    def _require_statistics(self, error: type[Exception]) -> Statistics | WideState:
        state = self._state
        if state.statistics is not None:
            return state.statistics
        if state.fitted is not None and "columns" in (state.fitted.refinement or {}):
            raise error(
                "what models of text and other wide rows learn on from is in neither a model "
                "file nor a pickle: keep the estimator in memory, or call fit with all rows"
            )
        raise error(
            "the sums over earlier rows are not in a model file or a pickle: keep them with "
            "bitclass.training.save_statistics and give them to "
            "BinaryCodeClassifier.load(path, statistics=...), or call fit with all rows"
        )

    def _checked_settings(
        self, callback: Callable[[Epoch], Any] | None = None, *, in_batches: bool = False
    ) -> Settings:
        self._validate_params()
        if in_batches and isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; where rows come in "
                "batches, give the weights as a dict"
            )
        if self.verbose:
            callback = with_bar(callback)
        return replace(settings_of(self.get_params(deep=False)), callback=callback)

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """Restore all attributes if the block raises."""
        before = dict(self.__dict__)
        try:
            with memory_errors():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # ---------------------------------------------------------------------------------------------
    # Predicting
    # ---------------------------------------------------------------------------------------------

    def predict(self, X: Features) -> NDArray[Any]:
        """Predict the nearest class, or the best of the rescored short list.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        with self._predicting(X) as (model, X):
            return model.predict(X)

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """Scores of the classes, of which the largest is that of the predicted class.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Without rescoring ``w_c.h(x)``, in [-n_bits, n_bits]. With it ``w_c.tanh(P'x + t)`` for
            the classes on the short list, and less than these for all others. Classes without
            samples have the lowest score of all. For two classes, as scikit-learn has it, of shape
            (n_samples,): half the difference of the two, positive for ``classes_[1]``.
        """
        with self._predicting(X) as (model, X):
            scores = self._of_all_classes(model.scores(X), -4.0 * model.n_bits)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Class probabilities.

        The result has a column per class; with many classes, `top_classes` gives the
        probabilities of the best ones without such an array.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        with self._predicting(X) as (model, X):
            return self._of_all_classes(model.predict_proba(X), 0.0)

    def predict_log_proba(self, X: Features) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, which do not underflow.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            -inf for classes without samples.
        """
        with self._predicting(X) as (model, X):
            return self._of_all_classes(model.predict_log_proba(X), -np.inf)

    def top_classes(
        self, X: Features, k: int, *, probabilities: bool = False
    ) -> tuple[NDArray[Any], ...]:
        """The k best classes, without an array of all n_samples x n_classes scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        k : int in [1, n_classes]
        probabilities : bool, default=False
            Whether to return the probabilities of these classes as well.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Best first: the rescored short list in the order of its scores, then the others by
            distance; equals in the order of `classes_`.
        distances : ndarray of shape (n_samples, k), int32
            Hamming distances.
        probabilities : ndarray of shape (n_samples, k)
            Where asked for.
        """
        with self._predicting(X) as (model, X):
            return model.top_classes(X, k, probabilities=probabilities)

    def score(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean accuracy.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score  # here, because it takes 0.3 s

        weights = to_host(sample_weight)
        return float(accuracy_score(to_host(y), to_host(self.predict(X)), sample_weight=weights))

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Codes of samples, packed.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, ceil(n_bits / 8)), uint8
            Bit k of a code is bit ``k % 8`` of byte ``k // 8``, set for +1.
        """
        with self._predicting(X) as (model, X):
            return model.encode(X)

    def packed(self) -> PackedModel:
        """The model without the estimator: all that predicting needs.

        Returns
        -------
        PackedModel
        """
        fitted, state = self.solve()._solved(), self._state
        model = fitted.model
        if not model.summary and state.statistics is not None:
            names = getattr(self, "feature_names_in_", None)
            model.summary = summarise(state.parameters, fitted, state.statistics.n_rows, names)
        return model

    @contextmanager
    def _predicting(self, X: Features) -> Iterator[tuple[PackedModel, Features]]:
        """The model and checked rows, on `n_jobs` threads; in float32 it is BLAS that has them."""
        model = self.solve()._solved().model
        # The model itself checks arrays of other libraries; the kernels refuse what is not finite,
        # at no cost.
        if not is_foreign(X):
            X = validate_data(self, X, reset=False, ensure_all_finite=False, **ACCEPTED)
        in_int8 = model.hash_function.precision == "int8"
        with thread_limit(self.n_jobs) if in_int8 else prediction_threads(self.n_jobs):
            yield model, X

    def _of_all_classes(self, values: NDArray[np.float64], of_others: float) -> NDArray[np.float64]:
        """Columns of `classes_` from those of the classes that have samples."""
        if values.shape[1] == len(self.classes_):
            return values
        columns = np.full((values.shape[0], len(self.classes_)), of_others)
        known = np.searchsorted(self.classes_, self._solved().model.classes)
        columns[:, known] = to_host(values)
        return like(columns, values)

    # ---------------------------------------------------------------------------------------------
    # Attributes
    # ---------------------------------------------------------------------------------------------

    def _solved(self) -> Fitted:
        """The result of training, for attributes: reading them does not train."""
        check_is_fitted(self)
        if not self._state.is_solved:
            raise AttributeError(
                "rows came by partial_fit since the model was last solved: call solve first"
            )
        assert self._state.fitted is not None
        return self._state.fitted

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, sorted, shape (n_classes,)."""
        check_is_fitted(self)
        if self._state.statistics is not None:
            return self._state.statistics.classes
        assert self._state.classes is not None
        return self._state.classes

    @property
    def weights_(self) -> NDArray[np.int8]:
        """Class weights of shape (n_classes, n_bits) in {-1, +1}, 0 for classes without samples."""
        model = self._solved().model
        weights = np.zeros((len(self.classes_), model.n_bits), dtype=np.int8)
        weights[np.searchsorted(self.classes_, model.classes)] = model.unpacked_weights()
        return weights

    @property
    def projection_(self) -> NDArray[np.float32]:
        """Matrix P of the hash function, shape (n_features, n_bits), or (n_anchors, n_bits)."""
        return self._solved().model.hash_function.projection

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Offset t of the hash function, shape (n_bits,)."""
        return self._solved().model.hash_function.intercept

    @property
    def objective_history_(self) -> NDArray[np.void]:
        """Logarithm of the objective after each bit update."""
        return self._solved().history

    @property
    def alpha_(self) -> float | None:
        """Penalty that the hash function was learned with; None after loading."""
        return self._solved().alpha

    @property
    def refinement_(self) -> dict[str, Any] | None:
        """Facts about the refinement, None where there was none."""
        return self._solved().refinement

    @property
    def n_iter_(self) -> int:
        """Number of rounds of the alternation."""
        return self._solved().n_rounds

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---------------------------------------------------------------------------------------------
    # Files
    # ---------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """State of a pickle: without the sums, unless the model has yet to take rows in."""
        state: dict[str, Any] = dict(super().__getstate__())
        if self.__sklearn_is_fitted__() and self._state.is_solved:
            self.packed()  # whose summary tells of the sums
            state["_state"] = replace(self._state, statistics=None, classes=self.classes_)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that learns on by itself: unlike a pickle, it has the sums."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __copy__(self) -> Self:
        # Of the same sums, two estimators would each count the other's rows.
        return copy.deepcopy(self)

    def save(
        self, path: str | os.PathLike[str], *, projection: ProjectionType | None = None
    ) -> None:
        """Save the model to a file, whole or not at all.

        The file holds what predicting needs, the parameters, and a summary of the training; not
        the sums that `partial_fit` continues from, which `bitclass.training.save_statistics`
        writes. `bitclass.load` reads it without scikit-learn, :meth:`load` gives an estimator.

        Classes without samples, which `partial_fit` was told of, are not part of the model: an
        estimator that is loaded without the sums has no columns for them in `predict_proba`.

        Parameters
        ----------
        path : str or path
            By custom ``*.safetensors``; a file that is there is replaced.
        projection : {"float32", "float16", "int8"}, optional
            What to save `projection_` in. "float32" changes nothing at all; "float16" takes half
            the space; "int8" takes a quarter, and changes no prediction of an estimator whose
            `precision` is "int8". By default "int8" for such an estimator of wide rows, "float32"
            for all others.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> from bitclass import BinaryCodeClassifier, load
        >>> X = np.random.default_rng(0).standard_normal((60, 5))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> classifier = BinaryCodeClassifier(n_bits=16, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "sides.safetensors")
        ...     classifier.save(path, projection="int8")
        ...     model = load(path)
        >>> bool(np.all(model.predict(X) == classifier.predict(X)))
        True
        """
        save_model(path, self.packed(), projection=projection)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, statistics: Statistics | None = None) -> Self:
        """Read an estimator from a file that `save` wrote.

        It predicts as the one that was saved did (see there), and has its parameters, but for
        `n_jobs`, `max_time` and `verbose`; `objective_history_` has one entry per step. To predict
        without scikit-learn, `bitclass.load` reads the same file.

        Parameters
        ----------
        path : str or path
            The file need not be trusted: nothing in it is run.
        statistics : Statistics, optional
            The sums that the model was learned from, as `bitclass.training.load_statistics` reads
            them, from which `partial_fit` continues. Rows that they have and the model has not are
            taken in by the next `solve` or prediction.

        Returns
        -------
        BinaryCodeClassifier

        Raises
        ------
        ModelFileError
            If this is not a model file, or damaged, or of a version that is not understood.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> from bitclass import BinaryCodeClassifier
        >>> X = np.random.default_rng(0).standard_normal((60, 5))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> classifier = BinaryCodeClassifier(n_bits=16, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.save(os.path.join(folder, "sides.safetensors"))
        ...     read = BinaryCodeClassifier.load(os.path.join(folder, "sides.safetensors"))
        >>> read
        BinaryCodeClassifier(n_bits=16, random_state=0)
        """
        model = load_model(path)
        classifier = cls()
        try:
            parameters, fitted = restore(model, classifier.get_params(deep=False))
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None
        parameters["n_bits"] = model.n_bits
        hash_function = model.hash_function
        default = "int8" if hash_function.anchors is None else "float32"
        if parameters.get("precision") != "auto" or hash_function.precision != default:
            parameters["precision"] = hash_function.precision
        classifier.set_params(**parameters)
        classifier.n_features_in_ = model.n_features
        if model.feature_names is not None:
            classifier.feature_names_in_ = np.array(model.feature_names, dtype=object)
        state = _State(classifier.get_params(deep=False), None, fitted, classes=model.classes)
        classifier._state = state
        if statistics is None:
            return classifier
        settings = classifier._checked_settings(in_batches=True)
        codes = check_initial_codes(classifier.initial_codes, None, settings.n_bits)
        check_continuation(statistics, settings, codes)
        n_features = statistics.n_features
        if n_features != model.n_features or not np.isin(model.classes, statistics.classes).any():
            raise ValueError(
                f"statistics must be those of the model, which has {model.n_features} features; "
                f"found those of {n_features} features and {len(statistics.classes)} classes"
            )
        if fitted.is_refined and not statistics.class_weights_when_refined.any():
            # A file of version 0.1 does not tell; its sums are those of the model.
            known = np.isin(statistics.classes, model.classes)
            statistics.class_weights_when_refined = np.where(known, statistics.class_weights, 0.0)
        classifier._state = replace(state, statistics=statistics)
        return classifier


def _first_batch(
    settings: Settings, codes: str | NDArray[Any], batch: Batch, classes: NDArray[Any] | None
) -> Statistics | WideState:
    """What a first batch of rows gives: their sums, or a model of wide rows."""
    n_features = batch[0].shape[1]
    if is_wide(settings, codes, batch[0]):
        return fit_wide(settings, lambda: iter([batch]), n_features, classes)
    statistics = start_statistics(settings, *batch, codes)
    statistics.add(*batch, classes)
    return statistics


def _with_weight(X: Features, labels: NDArray[Any], weights: NDArray[np.float64] | None) -> Batch:
    """The rows that have weight: those of weight 0 are as if absent."""
    if weights is None or weights.all():
        return X, labels, weights
    counts = np.flatnonzero(weights > 0)
    return take(X, counts), take(labels, counts), weights[counts]
