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
    """Fitted state of an estimator, always replaced as a whole.

    Attributes
    ----------
    parameters : dict, the estimator's parameters when rows were last added
    statistics : what training continues from, or None if it was not kept
    fitted : Fitted, or None before the first `solve`
    n_changes : int, `statistics.n_changes` when `fitted` was computed
    classes : (C,) labels, or None if there are statistics
    """

    parameters: dict[str, Any]
    statistics: Statistics | WideState | None
    fitted: Fitted | None = None
    n_changes: int = -1
    classes: NDArray[Any] | None = None

    @property
    def is_solved(self) -> bool:
        """Whether the model is up to date with the statistics."""
        if self.fitted is None:
            return False
        return self.statistics is None or self.statistics.n_changes == self.n_changes


class BinaryCodeClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-class classifier with binary sample codes and binary class weights.

    Codes of `n_bits` bits per sample and binary weight vectors per class are learned jointly. A new
    sample is hashed by ``h(x) = sign(P'x + t)`` and assigned to the class at the smallest Hamming
    distance, by default after ranking the nearest classes again (`rescore`); ties go to the lowest
    class index.

    Parameters
    ----------
    n_bits : int, default=128
        Code length r. 256 bits come closer to the accuracy of a real-valued linear model.

    loss : {"exponential", "hinge", "logistic", "squared_hinge", "crammer_singer"} or callable, \
            default="hinge"
        Loss of the margin ``m = w_c.b - w_y.b`` of each sample against each other class. "hinge"
        is the paper's linear loss, solved in closed form in a single pass over the rows for any
        number of classes. All others, including the paper's "exponential", compare all pairs of
        classes and support at most 4,096 classes. A callable maps an array of margins to an array
        of losses and must be non-decreasing.

    scale : float, default=1.0
        Factor on the margin inside the loss. The paper uses 1; about ``8 / n_bits`` makes the
        exponential loss depend on many samples rather than on the worst one alone.

    initial_codes : {"discriminant", "means", "projection", "random", "cca_itq"} or array of \
            shape (n_samples, n_bits), default="discriminant"
        The codes to start from. "discriminant" rotates the directions in which the class means
        differ most, relative to the within-class scatter, and takes signs; with the hinge loss
        the hash function then has a closed form. "means" takes the signs of random projections of
        the decorrelated class means, "projection" those of random projections of each sample's
        standardised features, "random" one random code per class, "cca_itq" rotated canonical
        directions. An array has entries -1 and +1 and works with `fit` only.

    solver : {"flip", "mincut"}, default="flip"
        Solver of the binary quadratic program in one bit of all class weights: the paper's bit
        flipping, which finds a local optimum, or a minimum cut, which finds the global optimum
        but requires a convex loss.

    max_iter : int, default=10
        Maximum number of rounds of the alternation, which stops early when a round changes nothing.

    alpha : float or "auto", default="auto"
        Regularisation strength of the hash function. For discriminant codes it is added to the
        within-class variances, in units of their mean, and "auto" chooses it on the rows that
        refinement holds out. If the hash function is a ridge regression (other starting codes,
        other losses, class weights), it is in units of each feature's variance, and "auto"
        chooses it by generalised cross-validation.

    refine : bool or "auto", default="auto"
        Whether to improve projection and weights jointly on the classification loss after the
        alternation. Some rows are held out; the refined model is kept only if it is at least as
        accurate on them as the model it started from, and the probabilities are calibrated on
        them. "auto" refines if there are at least 500 rows, and two per class.

    kernel : {"rbf"} or None, default=None
        With "rbf", rows are hashed by their similarities to anchors, the centres found by a few
        rounds of k-means.

    n_anchors : int or "auto", default="auto"
        Number of kernel anchors. "auto" is 1,000, or 2,000 if rows have at most 128 features, but
        never more than the number of rows.

    gamma : {"scale", "median"} or float, default="scale"
        Coefficient of the kernel ``exp(-gamma |x - a|^2)`` on standardised rows: "scale" is one
        over the number of features, "median" one over the median squared distance.

    rescore : "auto", int or False, default="auto"
        Number of nearest classes to rank again by ``w_c.tanh(P'x + t)``, which weights each bit by
        its certainty. "auto" is 16, unless 0 or 64 is clearly better on the rows that refinement
        holds out. False is the paper's rule: predict the nearest class.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn. With class weights, the hash function is a
        ridge regression even for discriminant codes.

    precision : {"auto", "int8", "float32"}, default="auto"
        Arithmetic in which new samples are encoded. "int8" quantises rows and projection on the
        fly: it is several times faster, and a row gets the same code in any batch, on any machine.
        It is too coarse for similarities to anchors, so "auto" is "float32" with a kernel, "int8"
        without.

    n_jobs : int or None, default=None
        Number of threads, at most the cores that the process may use; negative values count as in
        scikit-learn. None means the value of `set_num_threads` or ``BITCLASS_NUM_THREADS``, or else
        all these cores.

    max_time : float or None, default=None
        Seconds after which `fit` stops refining and keeps the best model so far. The steps before
        refinement always run to completion.

    random_state : int, RandomState instance or None, default=None
        Seed of the starting codes, the anchors and the refinement.

    verbose : int, default=0
        Whether to print a line after each round and each refinement epoch, and to show a progress
        bar in notebooks.

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
        Facts about the refinement: whether its result was kept, the accuracy before and after on
        the held-out rows, their number, and the epochs. None if the model was not refined. For
        wide rows, facts about their training.

    alpha_ : float or None
        Regularisation strength that was used; None for wide rows and after loading.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all are strings.

    Notes
    -----
    `fit` keeps the sums over the rows, ``8 d^2 + 8 C d`` bytes, so that `partial_fit` can
    continue. Losses other than "hinge" with starting codes per sample ("projection", "cca_itq")
    also keep ``r / 8 + 16`` bytes per sample. Pickles and model files hold the model without the
    sums; to keep both, see `save` and `load`.

    Sparse rows with more than 2,048 features, and dense rows with more than 8,192, are learned
    from mini-batches without sums over pairs of features. For sparse rows, `projection_` then has
    one row per feature that occurs often enough, ``packed().hash_function.columns``. `partial_fit`
    treats its first batch as `fit` does and applies later ones immediately, in small steps, so the
    model depends on their order; with more than 2,048 classes, later batches change the weights
    only.

    The attributes describe the model as it was last solved. After `partial_fit` they are
    unavailable until `solve` or a prediction has updated the model.

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
        """Create an estimator with the parameters of the published method.

        Parameters
        ----------
        n_bits : int, default=128
        loss : {"exponential", "hinge"}, another loss or callable, default="exponential"
        **parameters : other parameters of the estimator, which take precedence

        Returns
        -------
        BinaryCodeClassifier
            With random starting codes, ridge regression with a fixed penalty, no refinement, and
            prediction of the class at the smallest Hamming distance.

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
    # Training
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
        """Fit the model to all rows at once.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Group label of each row, such as its source. Refinement then holds out whole groups,
            as scikit-learn's GroupShuffleSplit does, and so evaluates on sources that were not
            trained on.
        callback : callable, optional
            Called after each epoch of refinement with an object that has the attributes `epoch`,
            `n_epochs`, `accuracy` (on the held-out rows) and `objective` (mean cross-entropy of
            the training rows). If it returns True, refinement stops and the best model so far is
            kept.

        Returns
        -------
        self
            If an exception is raised, the estimator is unchanged.
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
                        f"groups must be None for rows with {X.shape[1]:,} features: rows with "
                        f"more than {MAX_DENSE_FEATURES_OF_SPARSE:,} sparse or "
                        f"{MAX_DENSE_FEATURES:,} dense features are learned from mini-batches, "
                        "which hold out single rows"
                    )
            if weights is not None and not weights.all():
                weighted = weights > 0
                codes = codes if isinstance(codes, str) else codes[weighted]
                if groups is not None:
                    groups = np.unique(groups[weighted], return_inverse=True)[1]
            batch = _drop_zero_weights(X, labels, weights)
            check_class_count(to_host(batch[1]))  # before the work
            # Classes whose rows all have weight 0 count as known, too.
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
        """Fit the model to rows read in batches, without keeping them in memory.

        With ``refine=False`` one pass is enough; refinement makes further passes over the rows.

        Parameters
        ----------
        batches : callable
            Called with a row number, yields the rows from there on, in the same order every time:
            tuples of X and y, or of X, y and sample_weight.
        sample : tuple of X and y, optional
            Rows sampled from all of the data, from which standardisation, anchors and starting
            codes are computed; by default the first batch.
        statistics : Statistics, optional
            Sums over the first ``statistics.n_rows`` rows, to resume from. Updated in place.
        on_batch : callable, optional
            Called with the statistics after each batch of the first pass.
        n_rows : int, optional
            Number of rows that ``batches(0)`` yields, if these are a sample of the rows summed in
            `statistics`.
        feature_names : sequence of str, optional
            Names of the features.
        callback : callable, optional
            Called after each epoch of refinement: see `fit`.

        Returns
        -------
        self
            If an exception is raised, the estimator is unchanged.

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
                first = _drop_zero_weights(*check_rows(self, X, y, None, reset=True))
                wide = is_wide(settings, codes, first[0])

            def checked(start_row: int) -> Iterator[Batch]:
                for X, y, *sample_weight in batches(start_row):
                    weight = sample_weight[0] if sample_weight else None
                    X, labels, weights = check_rows(self, X, y, weight, reset=False)
                    if resumed and weights is not None and not weights.all():
                        raise ValueError(
                            "sample_weight and class_weight must not be 0 when a run is resumed "
                            "from statistics, because rows of weight 0 are not counted"
                        )
                    yield _drop_zero_weights(X, labels, weights)

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
        """Add a batch of rows; the model is updated at the next call of `solve` or a prediction.

        After `fit` or `fit_batches` with refinement, the refined hash function is kept. The
        weights of new classes are the codes of their means; so are those of known classes that
        gained rows, if that is better; all others stay. To learn the hash function again, call
        `fit` with all rows.

        Without refinement, the result equals ``fit`` with ``refine=False``, however the rows are
        split into batches. Kernel anchors and the starting codes "projection" and "cca_itq" are
        computed from the first batch, which should therefore be a representative sample. With
        these codes and a loss other than "hinge", each row enters the regression with the most
        common code of its class.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; a batch may contain classes not seen before.
        classes : array-like of shape (n_classes,), optional
            Labels expected in later batches, included in `classes_` from the start.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            If an exception is raised, no row of the batch was added.
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(in_batches=True)
            codes = check_initial_codes(self.initial_codes, None, self.n_bits)
            is_first, parameters = not self.__sklearn_is_fitted__(), self.get_params(deep=False)
            X, labels, weights = check_rows(self, X, y, sample_weight, reset=is_first)
            known = check_classes(classes, labels)
            if known is None and weights is not None:
                known = np.unique(to_host(labels))
            batch = _drop_zero_weights(X, labels, weights)
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
        """Remove classes, and an estimate of what their rows contributed to the sums.

        Parameters
        ----------
        labels : array-like of shape (k,)
            Labels of known classes; at least two other classes must have samples.

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
        """Update the model with the rows added since the last call of `fit` or `solve`.

        Predictions call this automatically; reading an attribute never does.

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
        """Fit to the sums, and to the rows if they are available.

        If `update` is a refined model, its hash function is kept.
        """
        check_class_count(statistics.classes[statistics.class_weights > 0])
        if isinstance(statistics, WideState):
            fitted = fitted_wide(settings, statistics)
        elif update is not None and update.is_refined:
            fitted = update_model(settings, update, statistics)
        else:
            fitted = fit_model(settings, statistics, rows, n_rows, groups)
        if settings.rescore is not None:  # an updated model still has the one chosen in refinement
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
                "the training state of a model of text or other wide rows is stored in neither "
                "model files nor pickles: keep the estimator in memory, or call fit with all rows"
            )
        raise error(
            "the sums over earlier rows are stored in neither model files nor pickles: save them "
            "with bitclass.training.save_statistics and pass them to "
            "BinaryCodeClassifier.load(path, statistics=...), or call fit with all rows"
        )

    def _checked_settings(
        self, callback: Callable[[Epoch], Any] | None = None, *, in_batches: bool = False
    ) -> Settings:
        self._validate_params()
        if in_batches and isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; to train in batches, "
                "pass the weights as a dict"
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
        """Class scores; the predicted class has the largest.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Without rescoring ``w_c.h(x)``, in [-n_bits, n_bits]. With rescoring
            ``w_c.tanh(P'x + t)`` for the classes on the short list, and lower scores for all
            others. Classes without samples have the lowest score of all. For two classes, the shape
            is (n_samples,), as in scikit-learn: half the difference of the two scores, positive for
            ``classes_[1]``.
        """
        with self._predicting(X) as (model, X):
            scores = self._for_all_classes(model.scores(X), -4.0 * model.n_bits)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Class probabilities.

        The result has one column per class; with many classes, `top_classes` returns the
        probabilities of the best ones without allocating such an array.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        with self._predicting(X) as (model, X):
            return self._for_all_classes(model.predict_proba(X), 0.0)

    def predict_log_proba(self, X: Features) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, computed without underflow.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            -inf for classes without samples.
        """
        with self._predicting(X) as (model, X):
            return self._for_all_classes(model.predict_log_proba(X), -np.inf)

    def top_classes(
        self, X: Features, k: int, *, probabilities: bool = False
    ) -> tuple[NDArray[Any], ...]:
        """The k best classes, without computing all n_samples x n_classes scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        k : int in [1, n_classes]
        probabilities : bool, default=False
            Whether to return the probabilities of these classes as well.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Best first: the rescored short list ordered by score, then the others by distance;
            ties in the order of `classes_`.
        distances : ndarray of shape (n_samples, k), int32
            Hamming distances.
        probabilities : ndarray of shape (n_samples, k)
            Only if ``probabilities=True``.
        """
        with self._predicting(X) as (model, X):
            found = model.top_classes(X, k, probabilities=probabilities)
            return tuple(part for part in found if part is not None)

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
        from sklearn.metrics import accuracy_score  # imported here because it takes 0.3 s

        weights = to_host(sample_weight)
        return float(accuracy_score(to_host(y), to_host(self.predict(X)), sample_weight=weights))

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Packed codes of samples.

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
        """The model without the estimator: all that prediction needs.

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
        """Model and checked rows; inside the block, kernels or BLAS use `n_jobs` threads."""
        model = self.solve()._solved().model
        # The model itself checks arrays of other libraries; the kernels reject non-finite values
        # at no extra cost.
        if not is_foreign(X):
            X = validate_data(self, X, reset=False, ensure_all_finite=False, **ACCEPTED)
        in_int8 = model.hash_function.precision == "int8"
        with thread_limit(self.n_jobs) if in_int8 else prediction_threads(self.n_jobs):
            yield model, X

    def _for_all_classes(self, values: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
        """One column per entry of `classes_`, filled with `fill` for classes without samples."""
        if values.shape[1] == len(self.classes_):
            return values
        columns = np.full((values.shape[0], len(self.classes_)), fill)
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
                "partial_fit has added rows since the model was last solved: call solve first"
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
        """Regularisation strength that was used; None for wide rows and after loading."""
        return self._solved().alpha

    @property
    def refinement_(self) -> dict[str, Any] | None:
        """Facts about the refinement, None if the model was not refined."""
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
        """State for pickling: without the sums, unless the model is not yet solved."""
        state: dict[str, Any] = dict(super().__getstate__())
        if self.__sklearn_is_fitted__() and self._state.is_solved:
            self.packed()  # writes the summary, which needs the sums
            state["_state"] = replace(self._state, statistics=None, classes=self.classes_)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent copy that, unlike a pickle, includes the sums."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __copy__(self) -> Self:
        # If two estimators shared the sums, each would count the other's rows.
        return copy.deepcopy(self)

    def save(
        self, path: str | os.PathLike[str], *, projection: ProjectionType | None = None
    ) -> None:
        """Save the model to a file atomically.

        The file holds what prediction needs, the parameters, and a summary of the training, but not
        the sums that `partial_fit` continues from: `bitclass.training.save_statistics` saves
        those. `bitclass.load` reads the file without scikit-learn; :meth:`load` returns an
        estimator.

        Classes without samples, passed to `partial_fit` as `classes`, are not part of the model: an
        estimator loaded without the sums has no columns for them in `predict_proba`.

        Parameters
        ----------
        path : str or path
            Conventionally ``*.safetensors``; an existing file is replaced.
        projection : {"float32", "float16", "int8"}, optional
            Data type in which to save `projection_`. "float32" is exact; "float16" takes half the
            space; "int8" takes a quarter, and does not change the predictions of an estimator
            whose `precision` is "int8". The default is "int8" for such an estimator of wide rows,
            "float32" for all others.

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
        """Load an estimator from a file written by `save`.

        It has the parameters of the saved estimator except `n_jobs`, `max_time` and `verbose`, and
        makes the same predictions (but see `save` on `projection`); `objective_history_` has one
        entry per step. To predict without scikit-learn, load the file with `bitclass.load`.

        Parameters
        ----------
        path : str or path
            The file need not be trusted: no code in it is executed.
        statistics : Statistics, optional
            The sums that the model was fitted to, from `bitclass.training.load_statistics`, so
            that `partial_fit` can continue. If they include rows that the model has not seen, the
            next `solve` or prediction updates it.

        Returns
        -------
        BinaryCodeClassifier

        Raises
        ------
        ModelFileError
            If the file is not a model file, is damaged, or has an unsupported version.

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
                f"statistics must be those of the model, with its {model.n_features} features and "
                f"its classes; found {n_features} features and {len(statistics.classes)} classes"
            )
        if fitted.is_refined and not statistics.class_weights_when_refined.any():
            # Files of version 0.1 do not store this; their sums are those of the model.
            known = np.isin(statistics.classes, model.classes)
            statistics.class_weights_when_refined = np.where(known, statistics.class_weights, 0.0)
        classifier._state = replace(state, statistics=statistics)
        return classifier


def _first_batch(
    settings: Settings, codes: str | NDArray[Any], batch: Batch, classes: NDArray[Any] | None
) -> Statistics | WideState:
    """State after the first batch: sums over its rows, or a model of wide rows."""
    n_features = batch[0].shape[1]
    if is_wide(settings, codes, batch[0]):
        return fit_wide(settings, lambda: iter([batch]), n_features, classes)
    statistics = start_statistics(settings, *batch, codes)
    statistics.add(*batch, classes)
    return statistics


def _drop_zero_weights(
    X: Features, labels: NDArray[Any], weights: NDArray[np.float64] | None
) -> Batch:
    """Drop rows of weight 0."""
    if weights is None or weights.all():
        return X, labels, weights
    weighted = np.flatnonzero(weights > 0)
    return take(X, weighted), take(labels, weighted), weights[weighted]
