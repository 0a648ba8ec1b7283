"""The estimator: parameters, fit and predict."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bitclass._native.threads import training_threads
from bitclass.arrays import Features, dense_rows, sample_rows
from bitclass.checks import (
    PARAMETER_CONSTRAINTS,
    check_class_count,
    check_class_weight,
    check_classes,
    check_groups,
    check_prior,
    check_rows,
    is_wide,
    settings_of,
)
from bitclass.labels import which_classes
from bitclass.model import PackedModel, dtype_with
from bitclass.predictor import PackedPredictor
from bitclass.report import Epoch, Report, make_summary, read_parameters
from bitclass.storage import ModelFileError, ProjectionType
from bitclass.storage import load as load_model
from bitclass.storage import save as save_model
from bitclass.training.anchors import anchor_count, choose_anchors
from bitclass.training.fit import Fitted, fit_model, judged_groups
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected, Sums, random_sample, standardisation
from bitclass.training.sums_file import load_sums, remove_sums, save_sums, sums_path

# Size of the sample of rows that is kept with the sums for later batches.
_KEPT_BYTES = 64 << 20
# Number of rows from which the standardisation of similarities to the anchors is estimated.
_ROWS_FOR_SIMILARITIES = 10_000


@dataclass(frozen=True)
class _State:
    """Fitted state of an estimator, always replaced as a whole."""

    parameters: dict[str, Any]  # of the estimator when rows were last added
    collected: Collected | None  # what training continues from, if it was kept
    fitted: Fitted | None  # None before the first `solve`
    classes: NDArray[Any]  # (C,) labels
    is_solved: bool  # whether the model is up to date with the rows


class BinaryCodeClassifier(PackedPredictor):
    """Multi-class classifier with binary sample codes and binary class weights.

    Codes of `n_bits` bits per sample and binary weight vectors per class are learned jointly. A new
    sample is hashed by ``h(x) = sign(P'x + t)`` and assigned to the class at the smallest Hamming
    distance, by default after ranking the nearest classes again (`rescore`); ties go to the
    nearer class, then to the lowest class index.

    Parameters
    ----------
    n_bits : int, default=128
        Code length r. 256 bits come closer to the accuracy of a real-valued linear model.

    alpha : float or "auto", default="auto"
        Penalty on the scatter within classes, in units of its mean variance. "auto" chooses it by
        leave-one-out, and whether it is added in the features' own units or to standardised ones;
        for wide rows it is 10.

    refine : bool or "auto", default="auto"
        Whether to improve projection and weights jointly on the rows after the closed form. Some
        rows are left out, or each of three folds in turn if there are few; the refined model is
        kept only if it explains them better than the closed form.

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
        its certainty. "auto" is 16, unless 64 is clearly better on the rows that refinement
        holds out. False is the paper's rule: predict the nearest class.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn: they multiply `sample_weight`.

    prior : {"train", "uniform"} or array of shape (n_classes,), default="train"
        Shares of the classes where the model is used: as frequent as in the (weighted) training
        rows, all equally frequent, or given in the order of `classes_`. With more than 1,024
        classes, "train" is the same as "uniform".

    reject : float in [0, 1], default=0
        Share of the rows of known classes that `predict` may reject, in order to recognise rows of
        no known class: those with a `typicality` below it get `unknown_label`. With 0 every row
        gets a class. It may be changed after `fit`, and is saved with the model.

    unknown_label : label or None, default=None
        Label of rejected rows: a string if labels are strings, a number if they are numbers. With
        None, `predict` returns an array of Python objects.

    keep_sums : bool, default=False
        Whether `fit` keeps the sums over the rows and a sample of them, so that `partial_fit` can
        continue: ``8 d^2 + 8 C d`` bytes and at most 64 MB. `partial_fit` always keeps them.

    n_jobs : int or None, default=None
        Number of threads, at most the cores that the process may use; negative values count as in
        scikit-learn. None means the value of `set_num_threads` or ``BITCLASS_NUM_THREADS``, or else
        all these cores, or the share of them that joblib, loky or Dask gives to a worker process
        (``OMP_NUM_THREADS``). The model does not depend on it.

    max_time : float or None, default=None
        Seconds after which `fit` stops refining and judges the model as it is. The steps before
        refinement always run to completion.

    random_state : int, RandomState instance or None, default=None
        Seed of the hyperplanes, the anchors and the refinement.

    verbose : int, default=0
        Whether to print a line after each epoch of refinement.

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

    report_ : Report
        How the model was judged: number of rows, accuracy of the closed form and of the model on
        rows they had not seen, whether refinement was accepted, the penalty, and the epochs.

    sums_ : Collected
        The sums over all rows and a sample of them, if they were kept.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all are strings.

    Notes
    -----
    Sparse rows with more than 2,048 features, and dense rows with more than 8,192, are whitened by
    the diagonal of their scatter alone. For sparse rows, `projection_` then has one row per feature
    that occurs often enough, ``packed().hash_function.columns``.

    Pickles and model files hold the model without the sums; to keep both, see `save` and `load`.

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
    >>> classifier.top_classes(X[:1], k=3).labels.shape
    (1, 3)
    """

    _parameter_constraints = PARAMETER_CONSTRAINTS

    _state: _State

    def __init__(
        self,
        n_bits: int = 128,
        *,
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
        self.n_bits = n_bits
        self.alpha = alpha
        self.refine = refine
        self.kernel = kernel
        self.n_anchors = n_anchors
        self.gamma = gamma
        self.rescore = rescore
        self.class_weight = class_weight
        self.prior = prior
        self.reject = reject
        self.unknown_label = unknown_label
        self.keep_sums = keep_sums
        self.n_jobs = n_jobs
        self.max_time = max_time
        self.random_state = random_state
        self.verbose = verbose

    # -- Training

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
            Rows; for `TextClassifier` an iterable of n_samples str or bytes.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Group label of each row, such as its source. Refinement then holds out whole groups,
            as scikit-learn's GroupShuffleSplit does, and so evaluates on sources that were not
            trained on.
        callback : callable, optional
            Called after each epoch of refinement with an object that has the attributes `epoch`,
            `n_epochs`, `accuracy` (on the held-out rows) and `objective` (mean cross-entropy of
            the training rows). If it returns True, refinement stops and the model is judged as
            it is. Fewer than 1,000 rows are judged in folds first: it is then called when the
            model of all rows is refined, if that is to be.

        Returns
        -------
        self
            If an exception is raised, the estimator is unchanged.
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(callback)
            X = self._rows_of(X, is_first=True)
            X, labels, weights = check_rows(self, X, y, sample_weight, reset=True)
            check_class_weight(self.class_weight, labels)
            of_groups = None if groups is None else check_groups(groups, X.shape[0])
            classes = np.unique(labels)  # those whose rows all have weight 0 count as known, too
            if of_groups is not None:
                of_groups = of_groups[weights > 0]
            X, labels, weights = _with_weight(X, labels, weights)
            check_class_count(labels)  # before the work
            judged = None
            if of_groups is not None:
                judged = judged_groups(labels, of_groups, weights, settings.seed)
            with training_threads(self.n_jobs):
                collected = self._start(settings, X, weights)
                collected.add(X, labels, weights, classes, judged, copy=False)
                self._learn(settings, collected, keep=self.keep_sums)
        return self

    def fit_batches(
        self,
        batches: Callable[[], Iterable[tuple[Any, ...]]] | Iterable[tuple[Any, ...]],
        *,
        feature_names: Sequence[str] | None = None,
        callback: Callable[[Epoch], Any] | None = None,
    ) -> Self:
        """Fit the model to rows read in batches, in one pass, without keeping them in memory.

        Rows are summed as they come, and a random sample of them is kept for refinement.

        Parameters
        ----------
        batches : callable or iterable
            Yields tuples of X and y, or of X, y and sample_weight. With a kernel, or for texts, it
            must be a callable that returns a new iterator each time, as anchors are drawn from a
            sample of all rows, and n-grams counted, before rows are summed.
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
        >>> def batches():
        ...     for first in range(0, len(X), 100):
        ...         yield X[first : first + 100], y[first : first + 100]
        >>> classifier = BinaryCodeClassifier(n_bits=32, random_state=0).fit_batches(batches)
        >>> bool(classifier.score(X, y) > 0.9)
        True
        """
        with self._unchanged_on_error():
            settings = self._checked_settings(callback, in_batches=True)
            batches = self._batches_of_rows(batches)
            self.__dict__.pop("feature_names_in_", None)
            collected: Collected | None = None
            with training_threads(self.n_jobs):
                if self.kernel is not None:
                    collected = self._start(settings, *self._sampled_rows(batches))
                for X, labels, weights, classes in self._checked_batches(batches):
                    if collected is None:
                        collected = self._start(settings, X, weights)
                    collected.add(X, labels, weights, classes)
                if collected is None or collected.n_rows == 0:
                    again = "" if collected is None else " when it was called again"
                    raise ValueError(
                        f"batches must yield at least one batch with rows, found none{again}"
                    )
                self._learn(settings, collected, keep=self.keep_sums)
            if feature_names is not None:
                self.feature_names_in_ = np.array([str(name) for name in feature_names], object)
        return self

    def _rows_of(self, X: Any, *, is_first: bool) -> Features:
        """What `fit` and `partial_fit` take as rows; other input is converted by subclasses."""
        return X

    def _batches_of_rows(self, batches: Any) -> Any:
        """The same for the batches of `fit_batches`."""
        return batches

    def _checked_batches(self, batches: Any) -> Iterator[tuple[Any, ...]]:
        """Rows, labels and weights of each batch without rows of weight 0, and all its classes."""
        is_first = True
        for X, y, *sample_weight in batches() if callable(batches) else batches:
            weight = sample_weight[0] if sample_weight else None
            X, labels, weights = check_rows(self, X, y, weight, reset=is_first)
            is_first = False
            if weights.any():
                yield *_with_weight(X, labels, weights), np.unique(labels)

    def _sampled_rows(self, batches: Any) -> tuple[Features, NDArray[np.float64]]:
        """A random sample of the rows of all batches, to draw anchors from."""
        if not callable(batches):
            raise ValueError(
                "batches must be a callable that returns a new iterator each time if kernel='rbf': "
                "the anchors are drawn from a sample of all rows before these are summed"
            )
        sampled, n_rows = None, 0
        for X, labels, _, _ in self._checked_batches(batches):
            sampled = random_sample(sampled, X, labels, n_rows, _ROWS_FOR_SIMILARITIES)
            n_rows += len(labels)
        if sampled is None:
            raise ValueError("batches must yield at least one batch with rows, found none")
        return sampled.X, sampled.weights

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a batch of rows; the model is updated at the next call of `solve` or a prediction.

        The sums over all rows and a random sample of the rows are kept. As long as the sample holds
        all rows, the result equals that of `fit`; later the closed form sees all rows, and
        refinement a sample of them.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows; for `TextClassifier` an iterable of n_samples str or bytes.
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
            is_first, parameters = not self.__sklearn_is_fitted__(), self.get_params(deep=False)
            if not is_first:
                self._require_sums(ValueError)  # before the work
            X = self._rows_of(X, is_first=is_first)
            X, labels, weights = check_rows(self, X, y, sample_weight, reset=is_first)
            known = check_classes(classes, labels)
            known = np.unique(labels) if known is None else np.union1d(known, np.unique(labels))
            X, labels, weights = _with_weight(X, labels, weights)
            with training_threads(self.n_jobs):
                if is_first:
                    if X.shape[0] == 0:
                        raise ValueError(
                            "sample_weight must be positive somewhere in the first batch"
                        )
                    collected = self._start(settings, X, weights, _KEPT_BYTES)
                    collected.add(X, labels, weights, known)
                    self._state = _State(parameters, collected, None, collected.classes, False)
                else:
                    collected = self._require_sums(ValueError)
                    self._check_continuation(settings, collected)
                    collected.add(X, labels, weights, known)
                    same = repr(parameters) == repr(self._state.parameters)
                    self._state = replace(
                        self._state,
                        parameters=parameters,
                        fitted=self._state.fitted if same else None,  # to continue from
                        classes=collected.classes,
                        is_solved=False,
                    )
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
        collected, labels = self._require_sums(ValueError), np.asarray(labels)
        gone = which_classes(collected.classes, labels)
        stay = collected.classes[~gone & (collected.masses() > 0)]
        if len(stay) < 2:
            left = stay.tolist()
            raise ValueError(f"labels must leave at least 2 classes with samples, found {left}")
        collected.remove_classes(labels)
        self._state = replace(self._state, classes=collected.classes, is_solved=False)
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
            parameters = self._state.parameters
            with training_threads(self.n_jobs):
                settings, collected = settings_of(parameters), self._require_sums(ValueError)
                self._learn(settings, collected, keep=True, before=self._state.fitted)
            self._state = replace(self._state, parameters=parameters)  # not those set since
        return self

    def _start(
        self,
        settings: Settings,
        X: Features,
        weights: NDArray[np.float64],
        max_bytes: int | None = None,
    ) -> Collected:
        """Empty sums of rows like these; anchors are chosen among them."""
        if is_wide(X):
            if settings.kernel:
                raise ValueError(f"kernel='rbf' does not support rows of {X.shape[1]:,} features")
            sums = Sums.of_wide(X.shape[1])
        else:
            centre, scale = standardisation(X, weights)
            anchors = None
            if settings.kernel:
                random = np.random.RandomState(settings.seed % 2**32)
                n_anchors = anchor_count(settings.n_anchors, *X.shape)
                # The first batch of `partial_fit` does not tell what later ones contain.
                anchors = choose_anchors(
                    *(X, n_anchors, settings.gamma, centre, scale, random),
                    ignore_constant=max_bytes is None,
                )
                some = sample_rows(X.shape[0], _ROWS_FOR_SIMILARITIES)
                similarities = anchors.similarities(dense_rows(X, some))
                centre, scale = standardisation(similarities, weights[some])
            sums = Sums(centre, scale, anchors=anchors)
        max_bytes = settings.max_bytes if max_bytes is None else max_bytes
        return Collected(sums, settings.seed, settings.pool_rows, max_bytes)

    def _learn(
        self,
        settings: Settings,
        collected: Collected,
        *,
        keep: bool,
        before: Fitted | None = None,
    ) -> None:
        """Fit the model to collected rows, or continue from the model `before`."""
        classes, seen = collected.classes, collected.masses() > 0
        check_class_count(classes[seen])
        prior = check_prior(settings.prior, classes)
        if not isinstance(prior, str):
            prior = prior[seen] / prior[seen].sum()
        settings = replace(settings, prior=prior)
        if self.reject:
            dtype_with(classes, self.unknown_label)  # before the work
        collected.standardise()
        fitted = fit_model(settings, collected, before)
        kept = collected.kept(_KEPT_BYTES) if keep else None
        self._state = _State(self.get_params(deep=False), kept, fitted, classes, True)

    @property
    def sums_(self) -> Collected:
        """The sums over all rows and a sample of them, from which `partial_fit` continues."""
        check_is_fitted(self)
        return self._require_sums(AttributeError)

    def _require_sums(self, error: type[Exception]) -> Collected:
        if self._state.collected is None:
            raise error(
                "the sums over earlier rows were not kept: fit with keep_sums=True, save with "
                "sums=True (a pickle has none), or call fit with all rows"
            )
        return self._state.collected

    @staticmethod
    def _check_continuation(settings: Settings, collected: Collected) -> None:
        """Raise an error if parameters are incompatible with those of earlier batches."""
        anchors = collected.sums.anchors
        n_anchors = 0 if anchors is None else len(anchors.anchors)
        if settings.kernel != (n_anchors > 0):
            found = f"kernel={'rbf' if settings.kernel else None!r} differs from the kernel"
        elif n_anchors and settings.n_anchors not in ("auto", n_anchors):
            found = f"n_anchors={settings.n_anchors!r} differs from the {n_anchors} anchors"
        else:
            return
        raise ValueError(f"{found} of earlier batches; call fit to start over")

    def _checked_settings(
        self, callback: Callable[[Epoch], Any] | None = None, *, in_batches: bool = False
    ) -> Settings:
        self._validate_params()
        if in_batches and isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; to train in batches, "
                "pass the weights as a dict"
            )
        return replace(settings_of(self.get_params(deep=False)), callback=callback)

    def packed(self) -> PackedModel:
        """The model without the estimator: all that prediction needs.

        Returns
        -------
        PackedModel
        """
        fitted = self.solve()._solved()
        if not fitted.model.summary:
            names = getattr(self, "feature_names_in_", None)
            fitted.model.summary = make_summary(self._state.parameters, fitted.report, names)
        return fitted.model

    # -- Attributes

    def _solved(self) -> Fitted:
        """The result of training, for attributes: reading them does not train."""
        check_is_fitted(self)
        if not self._state.is_solved:
            raise AttributeError(
                "partial_fit has added rows since the model was last solved: call solve first"
            )
        fitted = self._state.fitted
        assert fitted is not None
        # Parameters of prediction, which may have changed since the rows were added.
        fitted.model.reject, fitted.model.unknown_label = self.reject, self.unknown_label
        return fitted

    def _solved_model(self) -> PackedModel:
        return self._solved().model

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, sorted, shape (n_classes,)."""
        check_is_fitted(self)
        return self._state.classes

    @property
    def report_(self) -> Report:
        """How the model was judged."""
        return self._solved().report

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    # -- Files

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: without the sums, unless the model is not yet solved."""
        state: dict[str, Any] = dict(super().__getstate__())
        if self.__sklearn_is_fitted__() and self._state.is_solved:
            state["_state"] = replace(self._state, collected=None)
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
        self,
        path: str | os.PathLike[str],
        *,
        projection: ProjectionType | None = None,
        sums: bool = False,
    ) -> None:
        """Save the model to a file atomically.

        The file holds what prediction needs, the parameters, and a report of the training.
        `bitclass.load` reads it without scikit-learn; :meth:`load` returns an estimator. Classes
        without samples, passed to `partial_fit` as `classes`, are not part of it.

        Parameters
        ----------
        path : str or path
            Conventionally ``*.safetensors``; an existing file is replaced.
        projection : {"float32", "int8", "int4", "1bit"}, optional
            Data type in which to save `projection_`. "float32" is exact; "int8" takes a quarter of
            the space, and does not change the predictions of a model without anchors. "int4" and
            "1bit" are for wide rows, for which the default is the smallest type that is exact; for
            all others it is "float32".
        sums : bool, default=False
            Whether to save the sums too, as ``NAME.sums.safetensors`` beside ``NAME.safetensors``,
            so that `partial_fit` can continue after `load`. Otherwise a file of that name, which
            belongs to an earlier model, is removed.

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
        if sums:
            # First: a model without its sums predicts, sums without their model are of no use.
            save_sums(sums_path(path), self.sums_)
        else:
            remove_sums(sums_path(path))
        save_model(path, self.packed(), projection=projection)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load an estimator from a file written by `save`, and the sums if they are beside it.

        It has the parameters of the saved estimator except `n_jobs`, `max_time` and `verbose`, and
        makes the same predictions. To predict without scikit-learn, load the file with
        `bitclass.load`.

        Parameters
        ----------
        path : str or path
            The file need not be trusted: no code in it is executed.

        Returns
        -------
        BinaryCodeClassifier

        Raises
        ------
        ModelFileError
            If the file is not a model file, is damaged, or has an unsupported version.
        """
        model = load_model(path)
        classifier = cls()
        try:
            parameters = read_parameters(model.summary, classifier.get_params(deep=False))
        except ValueError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None
        if "report" not in model.summary:
            raise ModelFileError(f"{os.fspath(path)}: was not fitted by BinaryCodeClassifier")
        report = Report.from_dict(model.summary["report"])
        parameters["n_bits"] = model.n_bits
        classifier.set_params(**parameters)
        classifier.n_features_in_ = model.n_features
        if model.feature_names is not None:
            classifier.feature_names_in_ = np.array(model.feature_names, dtype=object)
        collected, classes, is_solved = None, model.classes, True
        if os.path.exists(sums_path(path)):
            collected = load_sums(sums_path(path))
            classes = collected.classes
            if collected.sums.n_features != model.n_features:
                raise ModelFileError(
                    f"{sums_path(path)}: sums over {collected.sums.n_features} features, but the "
                    f"model has {model.n_features}"
                )
            is_solved = collected.n_rows == report.n_rows
        fitted = Fitted(model, report)
        parameters = classifier.get_params(deep=False)
        classifier._state = _State(parameters, collected, fitted, classes, is_solved)
        return classifier


def _with_weight(
    X: Features, labels: NDArray[Any], weights: NDArray[np.float64]
) -> tuple[Any, ...]:
    """The rows of positive weight, with their labels and weights."""
    used = weights > 0
    return (X, labels, weights) if used.all() else (X[used], labels[used], weights[used])
