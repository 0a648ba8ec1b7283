"""What comes in, checked before anything changes: errors name argument, found and expected."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from bitclass._native import effective_threads
from bitclass.arrays import Features, check_no_texts, frame_columns, on_host
from bitclass.codes import MAX_BITS
from bitclass.hash_function import MAX_COLUMNS, MAX_GAMMA, MIN_GAMMA
from bitclass.labels import check_label_kinds
from bitclass.predictor import ACCEPTED
from bitclass.training.settings import Settings

# Wider rows are whitened by the diagonal of their scatter: sums over all pairs of features would
# take 8 d^2 bytes and d^3 operations. The limit is lower for sparse rows, as sums need dense ones.
MAX_DENSE_FEATURES, MAX_DENSE_FEATURES_OF_SPARSE = 8192, 2048

# Positive sample weights outside this range are rejected: their sums could overflow float64.
MIN_SAMPLE_WEIGHT, MAX_SAMPLE_WEIGHT = 1e-30, 1e30

#: Types and ranges of the parameters, for scikit-learn's parameter validation.
PARAMETER_CONSTRAINTS: dict[str, Any] = {
    "n_bits": [Interval(Integral, 1, MAX_BITS, closed="both")],
    "alpha": [Interval(Real, 0.0, None, closed="left"), StrOptions({"auto"})],
    "refine": ["boolean", StrOptions({"auto"})],
    "kernel": [StrOptions({"rbf"}), None],
    "n_anchors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "gamma": [Interval(Real, MIN_GAMMA, MAX_GAMMA, closed="both"), StrOptions({"scale", "median"})],
    "rescore": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    "prior": [StrOptions({"train", "uniform"}), "array-like"],
    "reject": [Interval(Real, 0.0, 1.0, closed="both")],
    "unknown_label": [str, Real, None],
    "keep_sums": ["boolean"],
    "n_jobs": [Integral, None],
    "max_time": [Interval(Real, 0.0, None, closed="neither"), None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def settings_of(parameters: Mapping[str, Any]) -> Settings:
    """Convert the parameters of the estimator, as `get_params` returns them, to settings."""
    effective_threads(parameters["n_jobs"])
    rescore = parameters["rescore"]
    if rescore is True:
        raise ValueError("rescore must be 'auto', False or a number of classes, found True")
    alpha, max_time = parameters["alpha"], parameters["max_time"]
    return Settings(
        n_bits=int(parameters["n_bits"]),
        alpha=None if alpha == "auto" else float(alpha),
        refine=parameters["refine"],
        kernel=parameters["kernel"] is not None,
        n_anchors=parameters["n_anchors"],
        gamma=parameters["gamma"],
        rescore=None if rescore == "auto" else int(rescore),
        prior=parameters["prior"],
        seed=int(check_random_state(parameters["random_state"]).randint(2**31 - 1)),
        max_bytes=int(get_config()["working_memory"] * 2**20) // 2,
        print_line=_print_line if parameters["verbose"] else lambda line: None,
        deadline=None if max_time is None else time.monotonic() + max_time,
    )


def _print_line(line: str) -> None:
    print(f"[BinaryCodeClassifier] {line}", flush=True)


def is_wide(X: Features) -> bool:
    """Whether rows (n, d) have so many features that sums over all pairs would be too large."""
    limit = MAX_DENSE_FEATURES_OF_SPARSE if hasattr(X, "tocsr") else MAX_DENSE_FEATURES
    if X.shape[1] > MAX_COLUMNS:
        raise ValueError(f"X must have at most {MAX_COLUMNS:,} features, found {X.shape[1]:,}")
    return bool(X.shape[1] > limit)


def check_prior(prior: Any, classes: NDArray[Any]) -> str | NDArray[np.float64]:
    """Check the shares of the classes: a name, or one positive number per class."""
    if isinstance(prior, str):
        return prior
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (len(classes),):
        raise ValueError(
            f"prior must have one share for each of the {len(classes)} classes, found an array of "
            f"shape {shares.shape}"
        )
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise ValueError("prior must contain positive finite numbers only")
    return np.asarray(shares / shares.sum())


def check_groups(groups: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Index of each row's group (n,), from labels of any type."""
    found = np.asarray(on_host(groups, "groups"))
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


def check_classes(classes: ArrayLike | None, labels: NDArray[Any]) -> NDArray[Any] | None:
    """Check the argument `classes` of `partial_fit`."""
    if classes is None:
        return None
    expected = np.unique(np.asarray(classes))
    if expected.dtype.kind == "f" and np.isnan(expected).any():
        raise ValueError("classes must not contain NaN")
    check_label_kinds(labels, expected)
    return expected


def check_rows(
    estimator: Any,
    X: Features,
    y: Any,
    sample_weight: ArrayLike | None,
    *,
    reset: bool,
) -> tuple[Features, NDArray[Any], NDArray[np.float64]]:
    """Checked rows, labels and weights, with class weights applied."""
    X, y = on_host(X, "X"), on_host(y, "y")
    sample_weight = on_host(sample_weight, "sample_weight")
    check_no_texts(X)
    _check_missing(y)
    kind = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if kind is not None and kind.kind in "iub":
        y = y.to_numpy(dtype=kind)  # scikit-learn would make floats
    X = frame_columns(X, None if reset else getattr(estimator, "feature_names_in_", None))
    X, labels = validate_data(estimator, X, y, reset=reset, **ACCEPTED)
    if not getattr(X, "has_canonical_format", True):
        X = X.copy()
        X.sum_duplicates()
    if hasattr(X, "tocsr") and not X.data.all():  # a stored zero is no entry
        X = X.copy()
        X.eliminate_zeros()
    labels = check_labels(labels)
    if sample_weight is None and estimator.class_weight is None:
        return X, labels, np.ones(X.shape[0])
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, copy=True, ensure_non_negative=True
    )
    if estimator.class_weight is not None:
        classes, indices = np.unique(labels, return_inverse=True)
        weights *= _class_weights(estimator.class_weight, classes, indices, weights)[indices]
    wrong = (weights > MAX_SAMPLE_WEIGHT) | ((weights > 0) & (weights < MIN_SAMPLE_WEIGHT))
    if wrong.any():
        raise ValueError(
            f"sample_weight, times class_weight, must be 0 or from {MIN_SAMPLE_WEIGHT:g} to "
            f"{MAX_SAMPLE_WEIGHT:g}, found {weights[np.argmax(wrong)]:g}: divide all weights by "
            "a constant"
        )
    return X, labels, weights


def _check_missing(y: Any) -> None:
    """Raise an error that names the row of a missing label, which scikit-learn's does not."""
    if getattr(y, "ndim", None) != 1:
        return
    if hasattr(y, "isna"):  # pandas
        missing = np.asarray(y.isna())
    elif y.dtype == object:
        missing = np.array([isinstance(label, float) and label != label for label in y], bool)
    else:
        return
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"y must not contain missing values, found one in row {row}")


def check_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Check labels (n,): integers, text, booleans, or floats that are integers."""
    if labels.dtype.kind not in "biufUSO":  # dates, for example, which no model file can store
        raise ValueError(
            "y must contain integers, text, booleans or whole numbers, found values of type "
            f"{labels.dtype}; convert them, for example with y.astype(str)"
        )
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
    return labels


def _class_weights(
    class_weight: Mapping[Any, float] | str,
    classes: NDArray[Any],
    y: NDArray[np.intp],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Class weights (C,): from a dict, with 1 for classes not in it, or balanced.

    `y` (n,) are class indices; "balanced" takes the sample weights (n,) into account.
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
    classes = set(np.unique(labels).tolist())
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
