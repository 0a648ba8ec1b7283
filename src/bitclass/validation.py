"""Checks of what a user gives: each error names the argument, what was found and what may be."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from bitclass._native import effective_threads
from bitclass.learning import Settings
from bitclass.losses import Loss, resolve_loss, tabulate
from bitclass.rows import Features
from bitclass.training import SOLVERS, STARTING_CODES, Statistics, check_label_kinds

__all__ = [
    "ACCEPTED",
    "anchor_count",
    "check_announced_classes",
    "check_class_count",
    "check_continuation",
    "check_initial_codes",
    "check_named_codes",
    "check_parameters",
    "check_rows",
    "is_integer",
    "weights_of_classes",
]

#: What scikit-learn's validation lets through: any real dtype as it is, and CSR.
ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric"}

# Sums and differences of two half margins must fit into int16.
_MOST_BITS = int(np.iinfo(np.int16).max) // 2
# The logarithm by which a loss may grow within one bit, 2 * scale, stays far from overflow.
_LARGEST_SCALE = 100.0
_SMALLEST_SCALE = 1e-6
# Anchors of the kernel by default: more where they cost little, and are needed most.
_SOME_ANCHORS, _MANY_ANCHORS = 1000, 2000
_FEATURES_OF_MANY_ANCHORS = 128


def check_parameters(parameters: Mapping[str, Any]) -> tuple[Settings, Loss]:
    """Check the parameters of the estimator, and put them into the form learning takes.

    Parameters
    ----------
    parameters : by name, as `BinaryCodeClassifier.get_params` gives them
    """
    n_bits, scale, solver = (parameters[name] for name in ("n_bits", "scale", "solver"))
    _check_integer("n_bits", n_bits, 1, _MOST_BITS)
    _check_integer("max_iter", parameters["max_iter"], 1, None)
    _check_real("scale", scale, _SMALLEST_SCALE, _LARGEST_SCALE)
    alpha = parameters["alpha"]
    if isinstance(alpha, str) and alpha == "auto":
        alpha = None
    else:
        _check_real("alpha", alpha, 0.0, float(np.finfo(np.float64).max), " or 'auto'")
    refine = parameters["refine"]
    if not (isinstance(refine, (bool, np.bool_)) or (isinstance(refine, str) and refine == "auto")):
        raise ValueError(f"refine must be True, False or 'auto', found {refine!r}")
    _check_kernel(parameters)
    try:
        check_random_state(parameters["random_state"])
    except ValueError:
        raise ValueError(
            "random_state must be an integer from 0 to 2**32 - 1, a RandomState or None, found "
            f"{parameters['random_state']!r}"
        ) from None
    class_weight = parameters["class_weight"]
    if not (
        class_weight is None or isinstance(class_weight, Mapping) or class_weight == "balanced"
    ):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, found {class_weight!r}")
    loss = resolve_loss(parameters["loss"])
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver must be one of {sorted(SOLVERS)}, found {solver!r}")
    codes = parameters["initial_codes"]
    if isinstance(codes, str) and codes not in STARTING_CODES:
        raise ValueError(
            f"initial_codes must be one of {list(STARTING_CODES)} or an array of codes, found "
            f"{codes!r}"
        )
    precision = parameters["precision"]
    if not (isinstance(precision, str) and precision in ("auto", "int8", "float32")):
        raise ValueError(f"precision must be 'auto', 'int8' or 'float32', found {precision!r}")
    in_floats = precision == "float32" or (precision == "auto" and parameters["kernel"] is not None)
    effective_threads(parameters["n_jobs"])
    table = None if loss.closed_form else tabulate(loss, n_bits, float(scale))
    if solver == "mincut" and table is not None and not table.convex:
        raise ValueError(
            f"solver='mincut' needs a loss that is convex on the margins, and loss {loss.name!r} "
            f"is not (scale={scale:g}); use solver='flip'"
        )
    settings = Settings(
        table=table,
        solver=SOLVERS[solver],
        max_rounds=parameters["max_iter"],
        alpha=None if alpha is None else float(alpha),
        max_bytes=int(get_config()["working_memory"] * 2**20),
        precision="float32" if in_floats else "int8",
        report=_print_line if parameters["verbose"] else _no_line,
    )
    return settings, loss


def _print_line(line: str) -> None:
    print(f"[BinaryCodeClassifier] {line}", flush=True)


def _no_line(line: str) -> None:
    pass


def check_initial_codes(
    initial_codes: str | ArrayLike, n_rows: int, n_bits: int
) -> str | NDArray[Any]:
    """The starting codes by name, or as an array of the right shape and values."""
    if isinstance(initial_codes, str):
        return initial_codes
    codes = np.asarray(initial_codes)
    if codes.ndim != 2:
        raise ValueError(
            f"initial_codes must be one of {list(STARTING_CODES)} or an array of codes, found "
            f"{initial_codes!r}"
        )
    if codes.shape != (n_rows, n_bits):
        raise ValueError(
            f"initial_codes must have shape (n_samples, n_bits) = {(n_rows, n_bits)}, "
            f"found {codes.shape}"
        )
    strange = np.flatnonzero((codes != 1) & (codes != -1))
    if strange.size:
        raise ValueError(
            "initial_codes must hold -1 and +1 only, found "
            f"{codes.ravel()[strange[0]]!r} in row {strange[0] // n_bits}"
        )
    return codes


def check_named_codes(initial_codes: str | ArrayLike) -> str:
    """Refuse an array of starting codes where rows come in batches."""
    if isinstance(initial_codes, str):
        return initial_codes
    raise ValueError(
        f"initial_codes must be one of {list(STARTING_CODES)} for partial_fit, found an array of "
        f"shape {np.shape(initial_codes)}"
    )


def check_continuation(statistics: Statistics, parameters: Mapping[str, Any], loss: Loss) -> None:
    """Refuse parameters that do not go on from the batches before."""
    starting = statistics.starting
    n_bits, initial_codes = parameters["n_bits"], parameters["initial_codes"]
    known_anchors = 0 if statistics.anchors is None else len(statistics.anchors.anchors)
    n_anchors = 0 if parameters["kernel"] is None else parameters["n_anchors"]
    if n_anchors == "auto":
        n_anchors = known_anchors or "some"
    if starting.n_bits != n_bits:
        found = f"n_bits={n_bits} differs from the {starting.n_bits} bits"
    elif starting.of_rows and statistics.keep_codes == loss.closed_form:
        found = f"loss={loss.name!r} needs other sums than the loss"
    elif isinstance(initial_codes, str) and initial_codes != starting.kind:
        found = f"initial_codes={initial_codes!r} differs from the {starting.kind!r} codes"
    elif n_anchors != known_anchors:
        found = f"a kernel of {n_anchors} anchors differs from the {known_anchors} anchors"
    else:
        return
    raise ValueError(f"{found} of the batches before; call fit to start anew")


def check_announced_classes(classes: ArrayLike | None, batch_classes: NDArray[Any]) -> NDArray[Any]:
    """The labels of a batch together with those that `partial_fit` is told will come."""
    if classes is None:
        return batch_classes
    announced = np.unique(np.asarray(classes))
    if announced.dtype.kind == "f" and np.isnan(announced).any():
        raise ValueError("classes must not hold NaN")
    check_label_kinds(batch_classes, announced)
    return np.union1d(announced, batch_classes)


def check_rows(
    estimator: Any, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
) -> tuple[Features, NDArray[Any], NDArray[Any], NDArray[np.float64] | None]:
    """Rows, their labels, the labels that occur, and the weights (None for ones)."""
    X, labels = validate_data(estimator, X, y, reset=reset, **ACCEPTED)
    check_labels(labels)
    classes = np.unique(labels)
    if sample_weight is None and estimator.class_weight is None:
        return X, labels, classes, None
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, copy=True, ensure_non_negative=True
    )
    if estimator.class_weight is not None:
        own = np.searchsorted(classes, labels)
        weights *= weights_of_classes(estimator.class_weight, classes, own, weights)[own]
    return X, labels, classes, weights


def check_labels(labels: NDArray[Any]) -> None:
    """Refuse labels that cannot be those of classes, such as fractions."""
    with warnings.catch_warnings():
        # A batch of few rows of very many classes is what this is made for.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        check_classification_targets(labels)


def weights_of_classes(
    class_weight: Mapping[Any, float] | str,
    classes: NDArray[Any],
    own: NDArray[np.intp],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Weights of classes (C,): those of a dict, 1 where it is silent, or balancing ones.

    Parameters
    ----------
    class_weight : dict or "balanced"
    classes : (C,) labels
    own : (n,) class index of each sample
    weights : (n,) sample weights, which "balanced" takes into account
    """
    if isinstance(class_weight, str):
        totals = np.bincount(own, weights=weights, minlength=len(classes))
        balancing: NDArray[np.float64] = weights.sum() / np.where(totals > 0, totals, 1.0)
        return balancing / len(classes)
    found = np.array([class_weight.get(label, 1.0) for label in classes.tolist()], dtype=float)
    strange = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if strange.size:
        raise ValueError(
            "class_weight must hold finite numbers of at least 0, found "
            f"{found[strange[0]]} for class {classes[strange[0]].item()!r}"
        )
    return found


def check_class_count(seen: NDArray[Any]) -> None:
    """Refuse fewer than two classes."""
    if len(seen) < 2:
        names = ", ".join(repr(label) for label in seen.tolist())
        raise ValueError(
            f"y must have samples (of positive weight) of at least 2 classes, found {len(seen)} "
            f"class: {names}"
        )


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of any type, but not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _check_integer(
    name: str, value: Any, lowest: int, highest: int | None, otherwise: str = ""
) -> None:
    if not is_integer(value) or value < lowest or (highest is not None and value > highest):
        most = "" if highest is None else f" and at most {highest}"
        raise ValueError(
            f"{name} must be an integer of at least {lowest}{most}{otherwise}, found {value!r}"
        )


def _check_real(name: str, value: Any, lowest: float, highest: float, otherwise: str = "") -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not (lowest <= value <= highest):
        raise ValueError(
            f"{name} must be a number from {lowest:g} to {highest:g}{otherwise}, found {value!r}"
        )


def _check_kernel(parameters: Mapping[str, Any]) -> None:
    kernel, gamma = parameters["kernel"], parameters["gamma"]
    if kernel is not None and not (isinstance(kernel, str) and kernel == "rbf"):
        raise ValueError(f"kernel must be 'rbf' or None, found {kernel!r}")
    n_anchors = parameters["n_anchors"]
    if not (isinstance(n_anchors, str) and n_anchors == "auto"):
        _check_integer("n_anchors", n_anchors, 1, None, " or 'auto'")
    if not (isinstance(gamma, str) and gamma in ("scale", "median")):
        _check_real("gamma", gamma, 1e-30, 1e30, ", 'scale' or 'median'")


def anchor_count(n_anchors: int | str, n_rows: int, n_features: int) -> int:
    """How many kernel anchors there are; more than rows to draw them from are refused."""
    if isinstance(n_anchors, str):
        many = n_features <= _FEATURES_OF_MANY_ANCHORS
        return min(n_rows, _MANY_ANCHORS if many else _SOME_ANCHORS)
    if n_anchors > n_rows:
        raise ValueError(
            f"n_anchors={n_anchors} anchors cannot be drawn from {n_rows} rows; give a smaller "
            "n_anchors, or more rows at first"
        )
    return n_anchors
