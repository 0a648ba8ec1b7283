"""Starting codes: what the alternation begins with, and all that the hinge loss ever sees of X.

Each kind is a pure function of a row (its features, its label, or its place), so that rows may come
in any batches, on any machine, and still get the same codes; or of the sums over all rows, when
every sample starts with the code of its class.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import Projection
from bitclass.codes import pack, packed_width, sign
from bitclass.rows import Features, dense_rows, sample_rows
from bitclass.training.cca_itq import cca_itq_projection

__all__ = [
    "STARTING_CODES",
    "GivenCodes",
    "MeanCodes",
    "ProjectionCodes",
    "RandomCodes",
    "StartingCodes",
    "start_codes",
]

#: Names of the starting codes that need nothing but the rows.
STARTING_CODES = ("means", "projection", "random", "cca_itq")

_CCA_ROWS = 20_000
# Added to the variance of each standardised feature before features are made uncorrelated.
_MEANS_REGULARISATION = 0.03


class StartingCodes(Protocol):
    """Gives each row its starting code."""

    n_bits: int
    kind: str
    of_rows: bool  # whether rows have codes of their own

    def fingerprint(self) -> str:
        """Equal for two objects that give every row the same code."""
        ...

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


class MeanCodes:
    """Signs of random projections of the class means, in coordinates without correlation.

    Every sample starts with the code of its class. In coordinates in which the features are
    uncorrelated, classes that are hard to tell apart have means, and thus codes, near each other,
    and bits are easy to predict from the features; all that is needed are sums over all rows.
    """

    kind = "means"
    of_rows = False

    def __init__(self, n_bits: int, seed: int) -> None:
        self.n_bits = n_bits
        self.seed = seed

    def fingerprint(self) -> str:
        """Equal for two objects that give every row the same code."""
        return f"means {self.n_bits} {self.seed}"

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Rows have no codes of their own."""
        raise TypeError("codes of class means need the sums over all rows: see of_sums")

    def of_sums(
        self,
        gram: NDArray[np.float64],
        feature_sums: NDArray[np.float64],
        class_weights: NDArray[np.float64],
    ) -> NDArray[np.int8]:
        """Starting codes of the classes.

        Parameters
        ----------
        gram : (d, d) ``sum weight z z'``
        feature_sums : (C, d) ``sum weight z`` over the rows of each class
        class_weights : (C,) ``sum weight`` over the rows of each class, positive

        Returns
        -------
        (C, r) int8 in {-1, +1}
        """
        total = class_weights.sum()
        column_sums = feature_sums.sum(axis=0)
        covariance = (gram - np.outer(column_sums, column_sums / total)) / total
        variances = np.maximum(np.diag(covariance), 0.0)
        deviations = np.sqrt(np.where(variances > 1e-12, variances, 1.0))
        covariance /= np.outer(deviations, deviations)
        covariance[np.diag_indices_from(covariance)] = 1.0 + _MEANS_REGULARISATION
        try:
            factor = scipy.linalg.cholesky(covariance, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the sums are such as no rows can have: the features' covariances are not positive"
            ) from None
        drawn = np.random.default_rng(self.seed).standard_normal((len(gram), self.n_bits))
        directions = scipy.linalg.solve_triangular(factor, drawn, lower=True, trans="T")
        means = feature_sums / class_weights[:, None]
        means -= means.mean(axis=0)
        return sign(means @ (directions / deviations[:, None]))


class RandomCodes:
    """A random code for each class, drawn from the seed and the label alone.

    Every sample starts with the code of its class. The draw does not depend on which other classes
    there are or in what order they come.
    """

    kind = "random"
    of_rows = True

    def __init__(self, n_bits: int, seed: int) -> None:
        self.n_bits = n_bits
        self.seed = seed

    def fingerprint(self) -> str:
        """Equal for two objects that give every row the same code."""
        return f"random {self.n_bits} {self.seed}"

    def of_classes(self, classes: NDArray[Any]) -> NDArray[np.uint8]:
        """Packed random codes of labels, shape (C, ceil(r / 8))."""
        width = packed_width(self.n_bits)
        drawn = b"".join(
            hashlib.shake_256(f"{self.seed}:{_name(label)!r}".encode()).digest(width)
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
    """Signs of a linear map of the features, ``sign(P'x + t)``, computed in int8.

    Integers give a row the same code in any batch, and several times faster.

    Parameters
    ----------
    mapping : (d, r)
        The linear map of the standardised features.
    centre, scale : (d,), what standardises the features
    kind : str
        What the map was found by.
    """

    of_rows = True

    def __init__(
        self,
        mapping: NDArray[np.float64],
        centre: NDArray[np.float64],
        scale: NDArray[np.float64],
        kind: str,
    ) -> None:
        self.kind = kind
        self.n_bits = mapping.shape[1]
        self.mapping = mapping
        self.centre = centre
        self.scale = scale
        projection = (mapping / scale[:, None]).astype(np.float32)
        self._hash_function = Projection(
            projection,
            -(centre @ projection.astype(np.float64)),
            precision="int8",
            centre=centre.astype(np.float32),
            scale=scale.astype(np.float32),
        )

    def fingerprint(self) -> str:
        """Equal for two objects that give every row the same code."""
        digest = hashlib.sha256(np.ascontiguousarray(self.mapping).tobytes())
        digest.update(self.centre.tobytes())
        digest.update(self.scale.tobytes())
        return f"projection {digest.hexdigest()}"

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows."""
        return self._hash_function.encode(X)


class GivenCodes:
    """Codes that the user gives, one a row."""

    kind = "given"
    of_rows = True

    def __init__(self, codes: NDArray[Any]) -> None:
        self.n_bits = codes.shape[1]
        self._packed = pack(codes)

    def fingerprint(self) -> str:
        """Equal for two objects that give every row the same code."""
        return f"given {hashlib.sha256(self._packed.tobytes()).hexdigest()}"

    def codes(
        self, X: NDArray[Any], classes: NDArray[Any], own: NDArray[np.intp], first_row: int
    ) -> NDArray[np.uint8]:
        """Packed starting codes of a block of rows."""
        return self._packed[first_row : first_row + len(own)]


def _name(label: Any) -> Any:
    """One name for labels that compare equal, whatever their type: 3, 3.0 and np.int8(3)."""
    if isinstance(label, float | bool) and label == int(label):
        return int(label)
    return label


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
    kind : {"means", "random", "projection", "cca_itq"} or (n, n_bits) codes
    n_bits : int
    X : (n, d)
    labels : (n,)
    weights : (n,) sample weights
    centre, scale : (d,), what standardises the features
    random : source of randomness
    """
    if not isinstance(kind, str):
        return GivenCodes(kind)
    if kind in ("means", "random"):
        seed = int(random.randint(np.iinfo(np.int32).max))
        return MeanCodes(n_bits, seed) if kind == "means" else RandomCodes(n_bits, seed)
    if kind == "projection":
        mapping = random.standard_normal((len(centre), n_bits))
    else:
        rows = sample_rows(X.shape[0], _CCA_ROWS)
        Z = dense_rows(X, rows)
        Z = (Z - centre.astype(Z.dtype)) / scale.astype(Z.dtype)
        _, own = np.unique(labels[rows], return_inverse=True)
        mapping = cca_itq_projection(Z, own, weights[rows], n_bits, random)
    return ProjectionCodes(mapping, centre, scale, kind)
