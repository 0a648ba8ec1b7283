"""Checks of what a user gives: each error names the argument, what was found and what may be."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config

from bitclass._native import effective_threads
from bitclass.learning import Settings
from bitclass.losses import Loss, resolve_loss, tabulate
from bitclass.training import SOLVERS, STARTING_CODES, Statistics

__all__ = [
    "ACCEPTED",
    "check_class_count",
    "check_continuation",
    "check_initial_codes",
    "check_parameters",
    "is_integer",
]

#: What scikit-learn's validation lets through: any real dtype as it is, and CSR.
ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric"}

# Half margins are counted in int16.
_MOST_BITS = int(np.iinfo(np.int16).max)
# The logarithm by which a loss may grow within one bit, 2 * scale, stays far from overflow.
_LARGEST_SCALE = 100.0


def check_parameters(
    parameters: Mapping[str, Any], report: Callable[[str], None]
) -> tuple[Settings, Loss]:
    """Check the parameters of the estimator, and put them into the form learning takes.

    Parameters
    ----------
    parameters : by name, as `BinaryCodeClassifier.get_params` gives them
    report : called with each line of progress
    """
    n_bits, scale, solver = (parameters[name] for name in ("n_bits", "scale", "solver"))
    _check_integer("n_bits", n_bits, 1, _MOST_BITS)
    _check_integer("max_iter", parameters["max_iter"], 1, None)
    _check_real("scale", scale, 0.0, _LARGEST_SCALE, lowest_included=False)
    _check_real("alpha", parameters["alpha"], 0.0, np.inf, lowest_included=True)
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
    if precision not in ("int8", "float32"):
        raise ValueError(f"precision must be 'int8' or 'float32', found {precision!r}")
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
        alpha=float(parameters["alpha"]),
        max_bytes=int(get_config()["working_memory"]) << 20,
        precision=precision,
        report=report,
    )
    return settings, loss


def check_initial_codes(
    initial_codes: str | ArrayLike, n_rows: int, n_bits: int
) -> str | NDArray[Any]:
    """The starting codes by name, or as an array of the right shape and values."""
    if isinstance(initial_codes, str):
        return initial_codes
    codes = np.asarray(initial_codes)
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


def check_continuation(statistics: Statistics, n_bits: int, loss: Loss) -> None:
    """Refuse parameters that do not go on from the batches before."""
    if statistics.starting.n_bits != n_bits:
        raise ValueError(
            f"n_bits={n_bits} differs from the {statistics.starting.n_bits} bits of the batches "
            "before; call fit to start anew"
        )
    if statistics.keep_codes == loss.closed_form:
        raise ValueError(
            f"loss {loss.name!r} cannot go on from the sums of the batches before, which were made "
            f"for {'another loss' if loss.closed_form else 'the hinge loss'}; call fit to start "
            "anew"
        )


def check_class_count(seen: NDArray[Any]) -> None:
    """Refuse to learn from the samples of fewer than two classes."""
    if len(seen) < 2:
        names = ", ".join(repr(label) for label in seen.tolist())
        raise ValueError(
            f"y must have samples (of positive weight) of at least 2 classes, found {len(seen)} "
            f"class: {names}"
        )


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of any type, but not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _check_integer(name: str, value: Any, lowest: int, highest: int | None) -> None:
    if not is_integer(value) or value < lowest or (highest is not None and value > highest):
        most = "" if highest is None else f" and at most {highest}"
        raise ValueError(f"{name} must be an integer of at least {lowest}{most}, found {value!r}")


def _check_real(
    name: str, value: Any, lowest: float, highest: float, lowest_included: bool
) -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not (lowest <= value <= highest) or (value == lowest and not lowest_included):
        left = "[" if lowest_included else "("
        raise ValueError(
            f"{name} must be a number in {left}{lowest:g}, {highest:g}], found {value!r}"
        )
