"""Validation of user input: errors name the argument, what was found and what is expected."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from bitclass._native import effective_threads
from bitclass.arrays import Features, check_array, device, is_foreign, namespace, to_host
from bitclass.codes import MAX_BITS
from bitclass.hash_function import MAX_GAMMA, MIN_GAMMA
from bitclass.losses import LOSSES, tabulate
from bitclass.training import Settings, Statistics
from bitclass.training.bqp import SOLVERS
from bitclass.training.starting_codes import STARTING_CODES
from bitclass.training.statistics import check_label_kinds
from bitclass.training.wide import WideState

__all__ = [
    "ACCEPTED",
    "PARAMETER_CONSTRAINTS",
    "check_class_count",
    "check_class_weight",
    "check_classes",
    "check_continuation",
    "check_groups",
    "check_initial_codes",
    "check_rows",
    "is_wide",
    "settings_of",
]

#: Options of scikit-learn's `validate_data`: any real dtype, unconverted, and CSR.
ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric"}

# Wider rows are learned from mini-batches (`training.wide`): sums over all pairs of features would
# take 8 d^2 bytes and d^3 operations. The limit is lower for sparse rows, as sums need dense ones.
MAX_DENSE_FEATURES, MAX_DENSE_FEATURES_OF_SPARSE = 8192, 2048
# Settings that mini-batches do not support use sums up to this width, at which they take 2 GB.
MAX_FEATURES_OF_SUMS = 16_384

# Positive sample weights outside this range are rejected: their sums could overflow float64.
MIN_SAMPLE_WEIGHT, MAX_SAMPLE_WEIGHT = 1e-30, 1e30

#: Types and ranges of the parameters, for scikit-learn's parameter validation.
PARAMETER_CONSTRAINTS: dict[str, list[Any]] = {
    "n_bits": [Interval(Integral, 1, MAX_BITS, closed="both")],
    "loss": [StrOptions(set(LOSSES)), callable],
    # Per bit, the exponential loss grows by at most exp(2 * scale), which must not overflow.
    "scale": [Interval(Real, 1e-6, 100.0, closed="both")],
    "initial_codes": [StrOptions(set(STARTING_CODES)), "array-like"],
    "solver": [StrOptions(set(SOLVERS))],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "alpha": [Interval(Real, 0.0, None, closed="left"), StrOptions({"auto"})],
    "refine": ["boolean", StrOptions({"auto"})],
    "kernel": [StrOptions({"rbf"}), None],
    "n_anchors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "gamma": [Interval(Real, MIN_GAMMA, MAX_GAMMA, closed="both"), StrOptions({"scale", "median"})],
    "rescore": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    "precision": [StrOptions({"auto", "int8", "float32"})],
    "n_jobs": [Integral, None],
    "max_time": [Interval(Real, 0.0, None, closed="neither"), None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def settings_of(parameters: Mapping[str, Any]) -> Settings:
    """Convert the parameters of the estimator to training settings.

    Parameters
    ----------
    parameters : mapping, as returned by `BinaryCodeClassifier.get_params`
    """
    effective_threads(parameters["n_jobs"])
    n_bits, scale = int(parameters["n_bits"]), float(parameters["scale"])
    loss = parameters["loss"]
    table = None if loss == "hinge" else tabulate(loss, n_bits, scale)
    if parameters["solver"] == "mincut" and table is not None and not table.convex:
        raise ValueError(
            f"solver='mincut' needs a loss that is convex on the margins, but loss {table.name!r} "
            f"is not (scale={scale:g}); use solver='flip'"
        )
    rescore = parameters["rescore"]
    if rescore is True:
        raise ValueError("rescore must be 'auto', False or a number of classes, found True")
    kernel = parameters["kernel"] is not None
    precision = parameters["precision"]
    if precision == "auto":
        precision = "float32" if kernel else "int8"
    alpha, max_time = parameters["alpha"], parameters["max_time"]
    return Settings(
        n_bits=n_bits,
        table=table,
        solver=SOLVERS[parameters["solver"]],
        max_rounds=int(parameters["max_iter"]),
        alpha=None if alpha == "auto" else float(alpha),
        refine=parameters["refine"],
        kernel=kernel,
        n_anchors=parameters["n_anchors"],
        gamma=parameters["gamma"],
        class_weighted=parameters["class_weight"] is not None,
        rescore=None if rescore == "auto" else int(rescore),
        precision=precision,
        random_state=parameters["random_state"],
        max_bytes=int(get_config()["working_memory"] * 2**20),
        print_line=_print_line if parameters["verbose"] else _no_line,
        deadline=None if max_time is None else time.monotonic() + max_time,
    )


def _print_line(line: str) -> None:
    print(f"[BinaryCodeClassifier] {line}", flush=True)


def _no_line(line: str) -> None:
    pass


def is_wide(settings: Settings, initial_codes: str | NDArray[Any], X: Features) -> bool:
    """Whether rows (n, d) have so many features that they are learned from mini-batches.

    Losses, starting codes and kernels other than the default need sums over all pairs of features,
    or distances; an error is raised if rows are too wide for these.
    """
    n_features = X.shape[1]
    limit = MAX_DENSE_FEATURES_OF_SPARSE if hasattr(X, "tocsr") else MAX_DENSE_FEATURES
    if n_features <= limit:
        return False
    default = isinstance(initial_codes, str) and initial_codes == "discriminant"
    needs_sums = {
        f"loss={settings.loss!r}": settings.table is not None,
        "initial_codes other than 'discriminant'": not default,
        "kernel='rbf'": settings.kernel,
    }
    reasons = [name for name, needed in needs_sums.items() if needed]
    if reasons and n_features > MAX_FEATURES_OF_SUMS:
        raise ValueError(
            f"X has {n_features:,} features, but {reasons[0]} supports at most "
            f"{MAX_FEATURES_OF_SUMS:,}; wider rows need loss='hinge', "
            "initial_codes='discriminant' and kernel=None"
        )
    return not reasons


def check_initial_codes(
    initial_codes: str | ArrayLike, n_rows: int | None, n_bits: int
) -> str | NDArray[Any]:
    """Check starting codes: a name, or an array of the right shape and values.

    Parameters
    ----------
    initial_codes : str or array-like
    n_rows : int, or None when training in batches, for which no array is allowed
    n_bits : int
    """
    if isinstance(initial_codes, str):
        return initial_codes
    codes = np.asarray(initial_codes)
    if n_rows is None:
        raise ValueError(
            f"initial_codes must be one of {list(STARTING_CODES)} when training in batches, "
            f"found an array of shape {codes.shape}"
        )
    if codes.shape != (n_rows, n_bits):
        raise ValueError(
            f"initial_codes must have shape (n_samples, n_bits) = {(n_rows, n_bits)}, "
            f"found {codes.shape}"
        )
    wrong = np.flatnonzero((codes != 1) & (codes != -1))
    if wrong.size:
        raise ValueError(
            "initial_codes must contain -1 and +1 only, found "
            f"{codes.ravel()[wrong[0]]!r} in row {wrong[0] // n_bits}"
        )
    return codes


def check_groups(groups: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Index of each row's group (n,), from labels of any type."""
    found = np.asarray(groups)
    if found.shape != (n_rows,):
        raise ValueError(f"groups must have shape (n_samples,) = {(n_rows,)}, found {found.shape}")
    try:
        names, index = np.unique(found, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups must contain labels of one type: {error}") from None
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise ValueError("groups must not contain NaN")
    if len(names) < 2:
        raise ValueError(f"groups must contain at least 2 groups, found {len(names)}")
    return index


def check_continuation(
    statistics: Statistics | WideState, settings: Settings, initial_codes: str | NDArray[Any]
) -> None:
    """Raise an error if parameters are incompatible with those of earlier batches."""
    if statistics.n_bits != settings.n_bits:
        raise ValueError(
            f"n_bits={settings.n_bits} differs from the {statistics.n_bits} bits of earlier "
            "batches; call fit to start over"
        )
    if isinstance(statistics, WideState):
        return
    starting = statistics.starting
    known_anchors = 0 if statistics.anchors is None else len(statistics.anchors.anchors)
    if starting.per_row and statistics.keep_codes == (settings.table is None):
        found = f"loss={settings.loss!r} needs different sums than the loss"
    elif isinstance(initial_codes, str) and initial_codes != starting.kind:
        found = f"initial_codes={initial_codes!r} differs from the {starting.kind!r} codes"
    elif settings.kernel != (known_anchors > 0):
        found = f"kernel={'rbf' if settings.kernel else None!r} differs from the kernel"
    elif known_anchors and settings.n_anchors not in ("auto", known_anchors):
        found = f"n_anchors={settings.n_anchors!r} differs from the {known_anchors} anchors"
    else:
        return
    raise ValueError(f"{found} of earlier batches; call fit to start over")


def check_classes(classes: ArrayLike | None, labels: NDArray[Any]) -> NDArray[Any] | None:
    """Check the argument `classes` of `partial_fit`."""
    if classes is None:
        return None
    expected = np.unique(np.asarray(to_host(classes)))
    if expected.dtype.kind == "f" and np.isnan(expected).any():
        raise ValueError("classes must not contain NaN")
    check_label_kinds(to_host(labels[:1]) if is_foreign(labels) else labels, expected)
    return expected


def check_rows(
    estimator: Any,
    X: Features,
    y: Any,
    sample_weight: ArrayLike | None,
    *,
    reset: bool,
) -> tuple[Features, NDArray[Any], NDArray[np.float64] | None]:
    """Checked rows, labels and weights (None for ones), with class weights applied."""
    # For foreign arrays, the sums over the rows are checked to be finite: see `Statistics.add`.
    check_array(X)
    check_array(y, "y", reference=X)
    check_array(sample_weight, "sample_weight", reference=X)
    if not _stays_on_device(estimator, X):
        X, y = to_host(X), to_host(y)
    kind = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if kind is not None and kind.kind in "iub" and not y.isna().any():
        y = y.to_numpy(dtype=kind)  # scikit-learn would make floats
    options = {"reset": reset, "ensure_all_finite": not is_foreign(X), **ACCEPTED}
    checked, labels = validate_data(estimator, _stand_in(X), _stand_in(y), **options)
    X = X if is_foreign(X) else checked
    if not getattr(X, "has_canonical_format", True):
        X = X.copy()
        X.sum_duplicates()
    if is_foreign(y):
        labels = y
        if y.ndim != 1 or not namespace(y).isdtype(y.dtype, "integral"):
            raise ValueError(f"y must contain integers, or be a NumPy array, found {y.dtype}")
    else:
        for row, label in enumerate(labels if labels.dtype == object else ()):
            if not isinstance(label, str):
                # scikit-learn's estimator checks expect the first words.
                raise ValueError(
                    "Unknown label type: y must be an array of numbers or of text, found "
                    f"{label!r} in row {row}"
                )
        with warnings.catch_warnings():
            # Few rows of very many classes are normal here.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(labels)
    if sample_weight is None and estimator.class_weight is None:
        return X, labels, None
    weights = _check_sample_weight(
        to_host(sample_weight), checked, dtype=np.float64, copy=True, ensure_non_negative=True
    )
    if estimator.class_weight is not None:
        classes, y = np.unique(to_host(labels), return_inverse=True)
        weights *= _class_weights(estimator.class_weight, classes, y, weights)[y]
    wrong = (weights > MAX_SAMPLE_WEIGHT) | ((weights > 0) & (weights < MIN_SAMPLE_WEIGHT))
    if wrong.any():
        raise ValueError(
            f"sample_weight, times class_weight, must be 0 or from {MIN_SAMPLE_WEIGHT:g} to "
            f"{MAX_SAMPLE_WEIGHT:g}, found {weights[np.argmax(wrong)]:g}: divide all weights by "
            "a constant"
        )
    return X, labels, weights


def _stand_in(X: Any) -> Any:
    """A NumPy array for scikit-learn to check in place of a foreign one: repeats its first row."""
    return np.broadcast_to(to_host(X[:1, ...]), tuple(X.shape)) if is_foreign(X) else X


def _stays_on_device(estimator: Any, X: Any) -> bool:
    """Whether training runs on the device of foreign rows, rather than on a copy on the host."""
    codes = estimator.initial_codes
    by_discriminant = isinstance(codes, str) and codes == "discriminant"
    if not is_foreign(X) or estimator.kernel is not None or not by_discriminant:
        return False
    try:
        namespace(X).zeros(1, dtype=namespace(X).float64, device=device(X))
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"X is on {device(X)}, which has no float64: {error}") from None
    return bool(X.shape[-1] <= MAX_DENSE_FEATURES)


def _class_weights(
    class_weight: Mapping[Any, float] | str,
    classes: NDArray[Any],
    y: NDArray[np.intp],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Class weights (C,): from a dict, with 1 for classes not in it, or balanced.

    Parameters
    ----------
    class_weight : dict or "balanced"
    classes : (C,) labels
    y : (n,) class index of each sample
    weights : (n,) sample weights, which "balanced" takes into account
    """
    if isinstance(class_weight, str):
        totals = np.bincount(y, weights=weights, minlength=len(classes))
        balancing: NDArray[np.float64] = weights.sum() / np.where(totals > 0, totals, 1.0)
        return balancing / len(classes)
    found = np.array([class_weight.get(label, 1.0) for label in classes.tolist()], dtype=float)
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if wrong.size:
        raise ValueError(
            "class_weight must contain finite non-negative numbers, found "
            f"{found[wrong[0]]} for class {classes[wrong[0]].item()!r}"
        )
    return found


def check_class_weight(class_weight: Any, labels: NDArray[Any]) -> None:
    """Raise an error for weights of labels that do not occur, as scikit-learn does.

    If all classes of y have weights, additional ones are ignored.
    """
    if not isinstance(class_weight, Mapping):
        return
    classes = set(np.unique(to_host(labels)).tolist())
    unknown = [label for label in class_weight if label not in classes]
    if unknown and not classes <= class_weight.keys():
        raise ValueError(
            f"class_weight must have labels of y as its keys, found {unknown[0]!r}; y has "
            f"{sorted(classes)[:5]}{' and others' if len(classes) > 5 else ''}"
        )


def check_class_count(labels: NDArray[Any]) -> None:
    """Raise an error if labels (n,) have fewer than two classes."""
    if not np.any(labels != labels[:1]):
        found = f"1 class: {labels[:1].tolist()[0]!r}" if len(labels) else "none"
        raise ValueError(
            f"y must have samples (of positive weight) of at least 2 classes, found {found}"
        )
