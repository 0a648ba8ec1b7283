"""The estimator: parameters, validation, fit and predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bitclass.blas import training_threads
from bitclass.drawing import Replay
from bitclass.fitting import solve, start_statistics
from bitclass.learning import Knowledge, Settings, Solution
from bitclass.losses import Loss
from bitclass.predicting import Predicting
from bitclass.rows import Features
from bitclass.training import Statistics
from bitclass.validation import (
    check_announced_classes,
    check_class_count,
    check_continuation,
    check_initial_codes,
    check_named_codes,
    check_parameters,
    check_rows,
)

__all__ = ["BinaryCodeClassifier"]


class BinaryCodeClassifier(Predicting, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-class classifier whose codes and class weights are both bits.

    Every sample gets a code of `n_bits` bits, every class a binary weight vector, learned
    together; a new sample is hashed by ``h(x) = sign(P'x + t)`` and gets the class at the smallest
    Hamming distance, the lowest class index among equals.

    Parameters
    ----------
    n_bits : int, default=128
        Length r of the codes; 256 for accuracy closer to that of a real-valued linear model.

    loss : {"exponential", "hinge", "logistic", "squared_hinge", "crammer_singer"} or callable, \
            default="exponential"
        Loss of the margin ``m = w_c.b - w_y.b`` of each sample against each other class.
        "hinge" is the paper's, linear and solved in closed form in a single pass over the rows.
        A callable takes an array of margins and returns one value each; it must not decrease.

    scale : float, default=1.0
        Factor on the margin inside the loss. 1 is the paper; about ``8 / n_bits`` makes the
        exponential loss mind many samples and not the worst one alone.

    initial_codes : {"means", "projection", "random", "cca_itq"} or array of shape \
            (n_samples, n_bits), default="means"
        The codes to start from. "means" takes the signs of random projections of the class means,
        in coordinates without correlation; "projection" those of random projections of the
        standardised features of each sample, "random" one random code a class, "cca_itq" rotated
        canonical directions. An array has entries -1 and +1 and serves `fit` only.

    solver : {"flip", "mincut"}, default="flip"
        Solver of the binary quadratic program in one bit of all class weights: the paper's bit
        flipping, which ends in a local optimum, or a minimum cut, which finds the global one and
        needs a loss that is convex.

    max_iter : int, default=10
        Most rounds of the alternation; it ends earlier when a round changes nothing.

    alpha : float or "auto", default="auto"
        Penalty of the ridge regression behind the hash function, in units of the variance of each
        feature. "auto" chooses it by generalised cross-validation, at the cost of one
        eigen-decomposition.

    refine : bool or "auto", default="auto"
        Whether to improve projection and weights together on the classification loss, from where
        the alternation ended. A slice of the rows is held out, and the refined model is taken only
        if it is at least as good on it as what it began from; the probabilities are calibrated
        there. "auto" does so where there are at least 500 rows, and two a class.

    kernel : {"rbf"} or None, default=None
        With "rbf" rows are hashed by their similarities to anchors: the centres of a few rounds of
        k-means.

    n_anchors : int or "auto", default="auto"
        Number of anchors of the kernel. "auto" is 1,000, or 2,000 where rows have at most 128
        features, and all rows where those are fewer.

    gamma : {"scale", "median"} or float, default="scale"
        Width of the kernel ``exp(-gamma |x - a|^2)`` of standardised rows: "scale" is one over the
        number of features, "median" one over the median of the squared distances.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn.

    precision : {"auto", "int8", "float32"}, default="auto"
        What new samples are encoded in. "int8" quantises rows and projection on the fly: several
        times faster, and it gives a row the same code in any batch, on any machine. It is too
        coarse for similarities to anchors, so "auto" is "float32" with a kernel, "int8" without.

    n_jobs : int or None, default=None
        Number of threads, negative as in scikit-learn. None means what `set_num_threads` or
        ``BITCLASS_NUM_THREADS`` say, or else all cores that the process may use. It also bounds
        the BLAS in training, whose rounding may differ with it; all else does not depend on it.

    random_state : int, RandomState instance or None, default=None
        Seed of the starting codes, the anchors and the refinement.

    verbose : int, default=0
        Whether to print a line after each round.

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
        One entry a bit update, with the fields `round`, `step` ("W" or "B"), `bit` and
        `log_objective`, the logarithm of the objective after the update. "hinge" has one entry a
        step.

    n_iter_ : int
        Number of rounds of the alternation.

    refinement_ : dict or None
        What refinement came to: whether it was taken, the accuracy before and after on the rows
        held out, their number, and the epochs; None where there was none.

    alpha_ : float or None
        The penalty of the regression; None after loading.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where all are strings.

    Notes
    -----
    `fit` keeps the sums it learned from, so that `partial_fit` can go on from there:
    ``8 d^2 + 8 C d`` bytes. Only losses other than "hinge" that start from codes of the samples
    ("random", "projection", "cca_itq") keep more, ``r / 8 + 16`` bytes a sample.
    All losses but "hinge" need memory for a few C x C matrices; with more than 4,096 classes the
    weights are those of "hinge", and a warning says so.

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

    def __init__(
        self,
        n_bits: int = 128,
        *,
        loss: str | Callable[[NDArray[np.float64]], Any] = "exponential",
        scale: float = 1.0,
        initial_codes: str | ArrayLike = "means",
        solver: str = "flip",
        max_iter: int = 10,
        alpha: float | str = "auto",
        refine: bool | str = "auto",
        kernel: str | None = None,
        n_anchors: int | str = "auto",
        gamma: float | str = "scale",
        class_weight: dict[Any, float] | str | None = None,
        precision: str = "auto",
        n_jobs: int | None = None,
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
        self.class_weight = class_weight
        self.precision = precision
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from all rows at once.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        settings, loss = self._check_parameters()
        # From here on the estimator is what this call makes of it, or not fitted.
        self.__dict__.pop("_knowledge", None)
        X, labels, classes, weights = check_rows(self, X, y, sample_weight, reset=True)
        initial_codes = check_initial_codes(self.initial_codes, len(labels), self.n_bits)
        if weights is not None and not weights.all():
            counts = weights > 0
            X, labels, weights = X[counts], labels[counts], weights[counts]
            if not isinstance(initial_codes, str):
                initial_codes = initial_codes[counts]
        check_class_count(np.unique(labels))
        with training_threads(self.n_jobs):
            statistics = self._start(loss, X, labels, weights, initial_codes)
            statistics.add_classes(classes)
            statistics.add(X, labels, weights)
        self.classes_ = statistics.classes
        rows = [(0, X, labels, weights)]
        solution = self._learned(statistics, settings, loss, lambda: iter(rows), None)
        self._knowledge = Knowledge(statistics, solution)
        return self

    def partial_fit(
        self,
        X: Features,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a batch of rows; the model is learned anew when it is next asked for.

        Any split of the rows gives the model of ``fit`` with ``refine=False``: refinement needs
        the rows once more, see `solve`. Kernel anchors and the starting codes "projection" and
        "cca_itq" are set up on the first batch, which should therefore be a fair sample. With
        codes of the rows' own and another loss than "hinge", a row whose features are gone counts
        in the regression with the code that most of its class has.

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
        """
        _, loss = self._check_parameters()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once and cannot go with "
                "partial_fit; give the weights as a dict"
            )
        first = not hasattr(self, "_knowledge")
        if not first and self._knowledge.statistics is None:
            raise ValueError(
                "partial_fit goes on from sums over the rows before, and a model file does not "
                "hold them: call fit to start anew"
            )
        X, labels, new_classes, weights = check_rows(self, X, y, sample_weight, reset=first)
        codes = check_named_codes(self.initial_codes)
        if weights is not None and not weights.all():
            counts = weights > 0
            X, labels, weights = X[counts], labels[counts], weights[counts]
        announced = check_announced_classes(classes, new_classes)
        with training_threads(self.n_jobs):
            statistics = None if first else self._knowledge.statistics
            if statistics is None:
                if len(labels) == 0:
                    raise ValueError("sample_weight must be positive somewhere in the first batch")
                statistics = self._start(loss, X, labels, weights, codes)
            else:
                self._check_continuation(statistics, loss)
            statistics.add_classes(announced)
            statistics.add(X, labels, weights)
        self.classes_ = statistics.classes
        self._knowledge = Knowledge(statistics)
        return self

    def begin(self, X: Features, y: ArrayLike) -> Self:
        """Set up the starting codes on sample rows, which are not learned from.

        For rows that will come to `partial_fit` in an order of their own, sorted by class perhaps.
        X is (n_samples, n_features), y (n_samples,).
        """
        _, loss = self._check_parameters()
        X, labels, _, weights = check_rows(self, X, y, None, reset=True)
        codes = check_named_codes(self.initial_codes)
        return self.resume(self._start(loss, X, labels, weights, codes))

    def resume(self, statistics: Statistics) -> Self:
        """Take over the sums over rows that another estimator has seen.

        Parameters
        ----------
        statistics : Statistics
            As `statistics_` gives them, or a file; not copied.

        Returns
        -------
        self
        """
        self._check_continuation(statistics, self._check_parameters()[1])
        self.n_features_in_ = statistics.n_features
        self.classes_ = statistics.classes
        self._knowledge = Knowledge(statistics)
        return self

    def solve(self, replay: Replay | None = None, *, n_rows: int | None = None) -> Self:
        """Learn now from the sums over all rows seen, as a prediction would.

        Parameters
        ----------
        replay : callable, optional
            Each call passes over all rows once more, in batches: the first row's number, X, the
            labels, and the weights or None. With the rows the model can be refined, and losses
            other than "hinge" know the code of every row, as in `fit`.
        n_rows : int, optional
            How many rows pass, where these are only a sample of those that were seen.

        Returns
        -------
        self
        """
        settings, loss = self._check_parameters()
        statistics = self.statistics_
        self._check_continuation(statistics, loss)
        check_class_count(statistics.classes[statistics.class_weights > 0])
        self._knowledge.solution = self._learned(statistics, settings, loss, replay, n_rows)
        return self

    @property
    def statistics_(self) -> Statistics:
        """The sums over all rows seen, from which learning goes on."""
        check_is_fitted(self)
        statistics = self._knowledge.statistics
        if statistics is None:
            raise AttributeError("the sums over the rows are not in a model file")
        return statistics

    def _solved(self) -> Solution:
        """What was learned, learning it now if rows came since."""
        check_is_fitted(self)
        knowledge = self._knowledge
        if knowledge.solution is None:
            self.solve()
        assert knowledge.solution is not None
        return knowledge.solution

    def _n_classes_with_samples(self) -> int:
        if self._knowledge.statistics is None:
            return len(self._solved().model.classes)
        return int(np.count_nonzero(self._knowledge.statistics.class_weights > 0))

    def _take(self, solution: Solution) -> None:
        self._knowledge = Knowledge(None, solution)

    def _start(self, loss: Loss, *rows: Any) -> Statistics:
        return start_statistics(self.get_params(deep=False), loss, *rows)

    def _check_continuation(self, statistics: Statistics, loss: Loss) -> None:
        check_continuation(statistics, self.get_params(deep=False), loss)

    def _learned(self, statistics: Statistics, *given: Any) -> Solution:
        """What the sums teach, and the rows where they are at hand."""
        names = getattr(self, "feature_names_in_", None)
        with training_threads(self.n_jobs):
            return solve(self.get_params(deep=False), statistics, names, *given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_knowledge")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> tuple[Settings, Loss]:
        """Check all parameters before any work, and put them into the form learning takes."""
        return check_parameters(self.get_params(deep=False))
