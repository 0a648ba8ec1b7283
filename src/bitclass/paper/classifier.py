"""PaperClassifier: the published method as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bitclass._native.threads import effective_threads, training_threads
from bitclass._warn import warn
from bitclass.codes import MAX_BITS, make_distinct, pack
from bitclass.model import PackedModel
from bitclass.paper.alternation import Groups, Learned, alternate, hinge_weights, solve_hinge
from bitclass.paper.bqp import SOLVERS
from bitclass.paper.losses import LOSSES, LossTable, tabulate
from bitclass.paper.ridge import Rows, solve_ridge, standardise, temperature
from bitclass.paper.starting_codes import STARTING_CODES, starting_codes
from bitclass.predictor import ACCEPTED, PackedPredictor
from bitclass.report import make_summary
from bitclass.storage import ProjectionType
from bitclass.storage import save as save_model

# The program of one bit needs several C x C matrices: 1 GB for this many classes.
MAX_BQP_CLASSES = 4096
# The correlation matrix takes 2 GB for this many features.
MAX_FEATURES = 16_384


class PaperClassifier(PackedPredictor):
    """The method of "Learning Binary Codes and Binary Weights for Efficient Classification".

    Codes of the samples and weights of the classes, both of `n_bits` bits, are optimised
    alternately; the hash function ``h(x) = sign(P'x + t)`` is a ridge regression of the codes. A
    new sample is assigned to the class at the smallest Hamming distance; ties go to the lowest
    class index. `bitclass.BinaryCodeClassifier` is more accurate and has no limits on size.

    Parameters
    ----------
    n_bits : int, default=128
        Code length r.

    loss : {"exponential", "hinge", "logistic", "squared_hinge", "crammer_singer"} or callable, \
            default="exponential"
        Loss of the margin ``m = w_c.b - w_y.b`` of each sample against each other class. "hinge"
        is the paper's linear loss, solved in closed form for any number of classes. All others
        compare all pairs of classes and support at most 4,096 classes. A callable maps an array of
        margins to an array of losses and must be non-decreasing.

    scale : float, default=1.0
        Factor on the margin inside the loss. The paper uses 1; about ``8 / n_bits`` makes the
        exponential loss depend on many samples rather than on the worst one alone.

    solver : {"flip", "mincut"}, default="flip"
        Solver of the binary quadratic program in one bit of all class weights: the paper's bit
        flipping, which finds a local optimum, or a minimum cut, which finds the global optimum
        but requires a convex loss.

    max_iter : int, default=10
        Maximum number of rounds of the alternation, which stops early when a round changes nothing.

    alpha : float, default=0.01
        Penalty of the ridge regression, in units of each feature's variance.

    initial_codes : {"projection", "random", "means"} or array of shape (n_samples, n_bits), \
            default="projection"
        The codes to start from: signs of random projections of each sample's standardised
        features, one random code per class, signs of random projections of the decorrelated class
        means, or an array with entries -1 and +1.

    n_jobs : int or None, default=None
        Number of threads; None means all cores that the process may use.

    random_state : int, RandomState instance or None, default=None
        Seed of the starting codes.

    verbose : int, default=0
        Whether to print a line after each round.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted; those of rows with weight 0 only are left out.

    weights_, projection_, intercept_, n_features_in_, feature_names_in_
        As for `BinaryCodeClassifier`.

    objective_history_ : structured ndarray
        One entry per bit update, with the fields `round`, `step` ("W" or "B"), `bit` and
        `log_objective`, the logarithm of the objective after the update. "hinge" updates all bits
        at once and has one entry per step. The objective of a loss that can be negative is
        relative to its smallest possible value.

    n_iter_ : int
        Number of rounds of the alternation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bitclass.paper import PaperClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = PaperClassifier(n_bits=64, loss="hinge", random_state=0)
    >>> bool(classifier.fit(X[:1500], y[:1500]).score(X[1500:], y[1500:]) > 0.8)
    True
    """

    _parameter_constraints = {  # noqa: RUF012 - as in scikit-learn
        "n_bits": [Interval(Integral, 1, MAX_BITS, closed="both")],
        "loss": [StrOptions(set(LOSSES)), callable],
        # Per bit, the exponential loss grows by at most exp(2 * scale), which must not overflow.
        "scale": [Interval(Real, 1e-6, 100.0, closed="both")],
        "solver": [StrOptions(set(SOLVERS))],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0.0, None, closed="left")],
        "initial_codes": [StrOptions(set(STARTING_CODES)), "array-like"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_bits: int = 128,
        *,
        loss: str | Callable[[NDArray[np.float64]], Any] = "exponential",
        scale: float = 1.0,
        solver: str = "flip",
        max_iter: int = 10,
        alpha: float = 0.01,
        initial_codes: str | ArrayLike = "projection",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.scale = scale
        self.solver = solver
        self.max_iter = max_iter
        self.alpha = alpha
        self.initial_codes = initial_codes
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn codes, weights and hash function from rows in memory.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            If an exception is raised, the estimator is unchanged.
        """
        with self._unchanged_on_error():
            self._validate_params()
            effective_threads(self.n_jobs)
            table = self._loss_table()
            X, y = validate_data(self, X, y, **ACCEPTED)
            with training_threads(self.n_jobs):
                self._fit(table, X, np.asarray(y), sample_weight)
        return self

    def _fit(
        self, table: LossTable, X: Any, y: NDArray[Any], sample_weight: ArrayLike | None
    ) -> None:
        rows, start, classes = self._checked_rows(X, y, sample_weight)
        random = check_random_state(self.random_state)
        codes = starting_codes(start, rows, self.n_bits, random)
        groups = Groups.of_samples(rows.labels, codes, rows.sample_weight)
        sums = groups.code_sums(len(classes), self.n_bits)
        learned = self._learned(groups, sums, table)

        weights = make_distinct(learned.weights, sums, classes)
        # If the weights of a class had to change, they become the code of its samples.
        groups = learned.groups
        moved = np.any(weights != learned.weights, axis=1)[groups.labels]
        codes = np.where(moved[:, None], pack(weights)[groups.labels], groups.codes)
        groups = groups.with_codes(codes)
        hash_function, explained = solve_ridge(rows, groups, self.n_bits, self.alpha)
        self._print_line(f"hash function: {explained:.1%} of the codes' variance explained")

        self.classes_ = classes
        self.objective_history_ = learned.history
        self.n_iter_ = learned.n_rounds
        self._model = PackedModel(
            classes,
            pack(weights),
            hash_function,
            temperature=temperature(explained, *weights.shape),
            summary=self._summary(table.name, len(rows.Z)),
        )

    def _learned(self, groups: Groups, code_sums: NDArray[np.float64], table: LossTable) -> Learned:
        """Weights and codes, from samples with their starting codes."""
        n_classes = len(code_sums)
        if self.loss == "hinge":
            return solve_hinge(groups, code_sums)
        if n_classes > MAX_BQP_CLASSES:
            raise ValueError(
                f"loss={table.name!r} compares all pairs of classes and supports at most "
                f"{MAX_BQP_CLASSES:,} classes, found {n_classes:,}; use loss='hinge'"
            )
        start, solver = hinge_weights(code_sums), SOLVERS[self.solver]
        learned = alternate(groups, start, table, solver, self.max_iter, self._print_line)
        if not learned.converged:
            warn(
                f"the alternation did not converge within max_iter={self.max_iter} rounds; "
                "increase max_iter",
                ConvergenceWarning,
            )
        return learned

    def _loss_table(self) -> LossTable:
        table = tabulate(self.loss, self.n_bits, self.scale)
        if self.solver == "mincut" and not table.convex:
            raise ValueError(
                f"solver='mincut' needs a loss that is convex on the margins, but loss "
                f"{table.name!r} is not (scale={self.scale:g}); use solver='flip'"
            )
        return table

    def _checked_rows(
        self, X: Any, y: NDArray[Any], sample_weight: Any
    ) -> tuple[Rows, str | NDArray[Any], NDArray[Any]]:
        """Rows of positive weight, the name or array of their starting codes, and the classes."""
        n, n_features = X.shape
        if n_features > MAX_FEATURES:
            raise ValueError(
                f"X must have at most {MAX_FEATURES:,} features, found {n_features:,}; "
                "BinaryCodeClassifier has no such limit"
            )
        check_classification_targets(y)
        sample_weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        start = self._checked_start(n)
        if not sample_weight.all():
            kept = np.flatnonzero(sample_weight)
            X, y, sample_weight = X[kept], y[kept], sample_weight[kept]
            start = start if isinstance(start, str) else start[kept]
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            found = f"1 class: {classes.tolist()[0]!r}" if len(classes) else "none"
            raise ValueError(
                f"y must have samples (of positive weight) of at least 2 classes, found {found}"
            )
        return standardise(X, labels, sample_weight), start, classes

    def _checked_start(self, n_rows: int) -> str | NDArray[Any]:
        """The name of the starting codes, or an array (n, r) of them."""
        if isinstance(self.initial_codes, str):
            return self.initial_codes
        codes = np.asarray(self.initial_codes)
        if codes.shape != (n_rows, self.n_bits):
            raise ValueError(
                f"initial_codes must have shape (n_samples, n_bits) = {(n_rows, self.n_bits)}, "
                f"found {codes.shape}"
            )
        wrong = (codes != 1) & (codes != -1)
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            found = codes[row][wrong[row]][0]
            raise ValueError(
                f"initial_codes must contain -1 and +1 only, found {found!r} in row {row}"
            )
        return codes

    def _summary(self, loss: str, n_rows: int) -> dict[str, Any]:
        """The JSON summary saved in model files."""
        parameters = {"estimator": type(self).__name__, **self.get_params(deep=False), "loss": loss}
        if not isinstance(self.initial_codes, str):
            parameters["initial_codes"] = "array"
        last = float(self.objective_history_["log_objective"][-1])
        learned = {
            "n_rows": n_rows,
            "n_iter": self.n_iter_,
            "log_objective": last if np.isfinite(last) else None,
        }
        names = getattr(self, "feature_names_in_", None)
        return make_summary(parameters, feature_names=names) | {"paper": learned}

    def _print_line(self, line: str) -> None:
        if self.verbose:
            print(f"[PaperClassifier] {line}", flush=True)

    def packed(self) -> PackedModel:
        """The model without the estimator: all that prediction needs."""
        check_is_fitted(self, "_model")
        return self._model

    def save(
        self, path: str | os.PathLike[str], *, projection: ProjectionType | None = None
    ) -> None:
        """Save the model to a file, which `bitclass.load` reads: see `bitclass.storage.save`."""
        save_model(path, self.packed(), projection=projection)
