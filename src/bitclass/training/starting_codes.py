"""Starting codes: what the alternation begins with, and all that the hinge loss ever sees of X.

Each kind is a pure function of a row (its features, its label, or its place), so that rows may come
in any batches, on any machine, and still get the same codes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass._native import Projection
from bitclass.codes import pack, packed_width
from bitclass.rows import Features, dense_rows, sample_rows
from bitclass.training.cca_itq import cca_itq_projection

__all__ = [
    "STARTING_CODES",
    "GivenCodes",
    "ProjectionCodes",
    "RandomCodes",
    "StartingCodes",
    "start_codes",
]

#: Names of the starting codes that need nothing but the rows.
STARTING_CODES = ("projection", "random", "cca_itq")

_CCA_ROWS = 20_000


class StartingCodes(Protocol):
    """Gives each row its starting code."""

    n_bits: int

    def codes(
        self,
        X: NDArray[Any],
        classes: NDArray[Any],
        own: NDArray[np.intp],
        first_row: int,
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows.

        Parameters
        ----------
        X : (n, d) float32 or float64
        classes : (C,) labels
        own : (n,) index of each row's class in `classes`
        first_row : int, how many rows came before this block

        Returns
        -------
        (n, ceil(r / 8)) uint8
        """
        ...


class RandomCodes:
    """A random code for each class, drawn from the seed and the label alone.

    Every sample starts with the code of its class. The draw does not depend on which other classes
    there are or in what order they come.
    """

    def __init__(self, n_bits: int, seed: int) -> None:
        self.n_bits = n_bits
        self.seed = seed

    def of_classes(self, classes: NDArray[Any]) -> NDArray[np.uint8]:
        """Packed random codes of labels, shape (C, ceil(r / 8))."""
        width = packed_width(self.n_bits)
        drawn = b"".join(
            hashlib.shake_256(f"{self.seed}:{label!r}".encode()).digest(width)
            for label in classes.tolist()
        )
        codes = np.frombuffer(drawn, dtype=np.uint8).reshape(len(classes), width).copy()
        codes[:, -1] &= np.uint8((1 << ((self.n_bits - 1) % 8 + 1)) - 1)
        return codes

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows."""
        present, place = np.unique(own, return_inverse=True)
        return self.of_classes(classes[present])[place]


class ProjectionCodes:
    """Signs of a linear map of the features: ``sign(P'x + t)``."""

    def __init__(self, projection: NDArray[np.float32], intercept: NDArray[np.float64]) -> None:
        self.n_bits = projection.shape[1]
        self.projection = projection
        self.intercept = intercept
        self._hash_function = Projection(projection, intercept)

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows."""
        return self._hash_function.encode(X)


class GivenCodes:
    """Codes that the user gives, one a row."""

    def __init__(self, codes: NDArray[Any]) -> None:
        self.n_bits = codes.shape[1]
        self._packed = pack(codes)

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows."""
        return self._packed[first_row : first_row + len(own)]


def start_codes(
    kind: str | NDArray[Any],
    n_bits: int,
    X: Features,
    labels: NDArray[Any],
    weights: NDArray[np.float64],
    centre: NDArray[np.float64],
    scale: NDArray[np.float64],
    random: np.random.RandomState,
) -> StartingCodes:
    """Set up starting codes on the first rows.

    Parameters
    ----------
    kind : {"random", "projection", "cca_itq"} or (n, n_bits) codes
    n_bits : int
    X : (n, d)
    labels : (n,)
    weights : (n,) sample weights
    centre, scale : (d,), what standardises the features
    random : source of randomness
    """
    if not isinstance(kind, str):
        return GivenCodes(kind)
    if kind == "random":
        return RandomCodes(n_bits, seed=int(random.randint(np.iinfo(np.int32).max)))
    if kind == "projection":
        mapping = random.standard_normal((len(centre), n_bits))
    else:
        rows = sample_rows(X.shape[0], _CCA_ROWS)
        Z = dense_rows(X, rows)
        Z = (Z - centre.astype(Z.dtype)) / scale.astype(Z.dtype)
        _, own = np.unique(labels[rows], return_inverse=True)
        mapping = cca_itq_projection(Z, own, weights[rows], n_bits, random)
    projection = (mapping / scale[:, None]).astype(np.float32)
    return ProjectionCodes(projection, -(centre @ projection.astype(np.float64)))
