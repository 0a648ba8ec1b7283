"""Starting codes of the alternation.

Codes per row are a pure function of a row (its features or its number), so that a row gets the same
code in any batch, on any machine. Codes per class are a function of the sums over all rows; every
sample then starts with the code of its class.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import class_sums
from bitclass.arrays import Features, dense_rows, sample_rows
from bitclass.codes import pack, packed_width, sign, unpack
from bitclass.hash_function import HashFunction
from bitclass.training.discriminant import (
    coordinates_of,
    default_alpha,
    discriminant_projection,
    itq,
    scatter_of,
)

if TYPE_CHECKING:
    from bitclass.training.statistics import Sums

__all__ = [
    "CLASS_CODES",
    "STARTING_CODES",
    "DiscriminantCodes",
    "GivenCodes",
    "MeanCodes",
    "ProjectionCodes",
    "RandomCodes",
    "StartingCodes",
    "start_row_codes",
]

#: Names of the starting codes that can be computed from the data.
STARTING_CODES = ("discriminant", "means", "projection", "random", "cca_itq")

# CCA-ITQ: number of rows used, rounds of ITQ, and the share of the trace that is added to the
# diagonal of the covariance, as published.
_CCA_ROWS, _CCA_ITQ_ROUNDS, _CCA_REGULARISATION = 20_000, 50, 1e-4
# Added to the variance of each standardised feature before decorrelating the features.
_MEANS_REGULARISATION = 0.03


class StartingCodes:
    """The codes that training starts from: one per row, or one per class."""

    n_bits: int
    kind: str
    seed: int = 0  # 0 if the codes are not random
    per_row: bool = True  # whether each row has its own code, rather than that of its class

    def fingerprint(self) -> str:
        """Equal for two objects that give the same codes."""
        raise NotImplementedError

    def row_codes(self, X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Packed codes (n, ceil(r / 8)) of rows X (n, d) with the row numbers `rows` (n,).

        Only called if `per_row`.
        """
        raise NotImplementedError

    def code_sums(self, sums: Sums) -> NDArray[np.float64]:
        """Weighted sums of the starting codes of each class, (C, r)."""
        return sums.code_sums


@dataclass(frozen=True)
class _ClassCodes(StartingCodes):
    """Codes per class: every sample starts with the code of its class."""

    n_bits: int
    seed: int
    per_row = False

    def fingerprint(self) -> str:
        """Equal for two objects that give the same codes."""
        return f"{self.kind} {self.n_bits} {self.seed}"

    def class_codes(self, sums: Sums) -> NDArray[np.int8]:
        """Code of each class, (C, r) in {-1, +1}."""
        raise NotImplementedError

    def code_sums(self, sums: Sums) -> NDArray[np.float64]:
        """Weighted sums of the starting codes of each class, (C, r)."""
        return self.class_codes(sums) * sums.class_weights[:, None]


class MeanCodes(_ClassCodes):
    """Signs of random projections of the class means, in decorrelated coordinates.

    In these coordinates, classes that are hard to separate have similar means and thus similar
    codes, and bits are easy to predict from the features.
    """

    kind = "means"

    def class_codes(self, sums: Sums) -> NDArray[np.int8]:
        """Code of each class, (C, r) in {-1, +1}."""
        features = sums.correlation()
        correlations = features.matrix
        correlations[np.diag_indices_from(correlations)] = 1.0 + _MEANS_REGULARISATION
        try:
            factor = scipy.linalg.cholesky(correlations, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the sums are damaged: the features' correlation matrix is not positive definite"
            ) from None
        random = np.random.default_rng(self.seed)
        drawn = random.standard_normal((len(sums.gram), self.n_bits))
        directions = scipy.linalg.solve_triangular(factor, drawn, lower=True, trans="T")
        means = sums.feature_sums / sums.class_weights[:, None]
        means -= means.mean(axis=0)
        return sign(means @ (directions / features.norms[:, None]))


class DiscriminantCodes(_ClassCodes):
    """Signs of the class means in rotated discriminant directions.

    With the hinge loss, the hash function has a closed form as well: see
    `bitclass.training.discriminant`.
    """

    kind = "discriminant"

    def class_codes(self, sums: Sums) -> NDArray[np.int8]:
        """Code of each class, (C, r) in {-1, +1}."""
        coordinates = coordinates_of(scatter_of(sums), default_alpha(sums), self.n_bits)
        return discriminant_projection(coordinates, self.n_bits, self.seed)[2]


class RandomCodes(_ClassCodes):
    """A random code for each class that depends only on the seed and the label.

    It does not depend on which other classes exist or in what order they were added.
    """

    kind = "random"

    def class_codes(self, sums: Sums) -> NDArray[np.int8]:
        """Code of each class, (C, r) in {-1, +1}."""
        width = packed_width(self.n_bits)
        drawn = b"".join(
            hashlib.shake_256(f"{self.seed}:{_name(label)!r}".encode()).digest(width)
            for label in sums.classes.tolist()
        )
        codes = np.frombuffer(drawn, dtype=np.uint8).reshape(len(sums.classes), width)
        return unpack(codes, self.n_bits)


#: Codes per class, by name.
CLASS_CODES: dict[str, type[_ClassCodes]] = {
    codes.kind: codes for codes in (DiscriminantCodes, MeanCodes, RandomCodes)
}


class ProjectionCodes(StartingCodes):
    """Signs of a linear map of the features, ``sign(P'x + t)``, computed in int8.

    Integer arithmetic gives a row the same code in any batch, and is several times faster.

    Parameters
    ----------
    mapping : (d, r)
        The linear map of the standardised features.
    centre, scale : (d,), mean and standard deviation of the features
    kind : str
        Name of the starting codes.
    """

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
        self._hash_function = HashFunction(
            projection,
            -(centre @ projection.astype(np.float64)),
            centre=centre.astype(np.float32),
            scale=scale.astype(np.float32),
        )

    def fingerprint(self) -> str:
        """Equal for two objects that give the same codes."""
        digest = hashlib.sha256(np.ascontiguousarray(self.mapping).tobytes())
        digest.update(self.centre.tobytes())
        digest.update(self.scale.tobytes())
        return f"projection {digest.hexdigest()}"

    def row_codes(self, X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Packed codes (n, ceil(r / 8)) of rows X (n, d) whose numbers are `rows` (n,)."""
        return self._hash_function.encode(X)


class GivenCodes(StartingCodes):
    """Codes given by the user, one per row."""

    kind = "given"

    def __init__(self, codes: NDArray[Any]) -> None:
        self.n_bits = codes.shape[1]
        self._packed = pack(codes)

    def fingerprint(self) -> str:
        """Equal for two objects that give the same codes."""
        return f"given {hashlib.sha256(self._packed.tobytes()).hexdigest()}"

    def row_codes(self, X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Packed codes (n, ceil(r / 8)) of rows X (n, d) whose numbers are `rows` (n,)."""
        return self._packed[rows]


def _name(label: Any) -> Any:
    """The same name for labels that compare equal, whatever their type: 3, 3.0 and np.int8(3)."""
    if isinstance(label, float | bool) and label == int(label):
        return int(label)
    return label


def start_row_codes(
    kind: str | NDArray[Any],
    n_bits: int,
    X: Features,
    labels: NDArray[Any],
    weights: NDArray[np.float64],
    centre: NDArray[np.float64],
    scale: NDArray[np.float64],
    random: np.random.RandomState,
) -> StartingCodes:
    """Create starting codes per row from the first rows.

    Parameters
    ----------
    kind : {"projection", "cca_itq"} or (n, n_bits) codes
    n_bits : int
    X : (n, d)
    labels : (n,)
    weights : (n,) sample weights
    centre, scale : (d,), mean and standard deviation of the features
    random : RandomState
    """
    if not isinstance(kind, str):
        return GivenCodes(kind)
    if kind == "projection":
        mapping = random.standard_normal((len(centre), n_bits))
    else:
        rows = sample_rows(X.shape[0], _CCA_ROWS)
        Z = dense_rows(X, rows)
        Z = (Z - centre.astype(Z.dtype)) / scale.astype(Z.dtype)
        _, y = np.unique(labels[rows], return_inverse=True)  # index of each row's class
        mapping = _cca_itq_mapping(Z, y, weights[rows], n_bits, random)
    return ProjectionCodes(mapping, centre, scale, kind)


def _cca_itq_mapping(
    Z: NDArray[Any],
    labels: NDArray[np.intp],
    sample_weight: NDArray[np.float64],
    n_bits: int,
    random: np.random.RandomState,
) -> NDArray[np.float64]:
    """Linear map (d, n_bits) of standardised features whose signs are the CCA-ITQ codes.

    Parameters
    ----------
    Z : (n, d) standardised features
    labels : (n,) class indices
    sample_weight : (n,)
    n_bits : int
    random : RandomState
    """
    # Directions of regularised canonical correlation between features and class membership.
    total = sample_weight.sum()
    covariance = np.asarray(Z.T @ (Z * sample_weight[:, None].astype(Z.dtype)), np.float64) / total
    covariance[np.diag_indices_from(covariance)] += _CCA_REGULARISATION * max(
        np.trace(covariance), np.finfo(np.float64).tiny
    )
    factor = scipy.linalg.cholesky(covariance, lower=True)
    class_weights = np.bincount(labels, weights=sample_weight)
    sums = np.zeros((len(class_weights), Z.shape[1]))
    class_sums(Z, labels, sample_weight, sums)
    between = sums / np.sqrt(class_weights * total)[:, None]
    whitened = scipy.linalg.solve_triangular(factor, between.T, lower=True)
    left, correlations, _ = scipy.linalg.svd(whitened, full_matrices=False)
    k = int(np.count_nonzero(correlations[:n_bits] > 1e-6 * correlations[0]))
    directions = scipy.linalg.solve_triangular(factor, left[:, :k], lower=True, trans="T")
    # As published, each direction is scaled by its correlation.
    directions = directions * correlations[:k]
    start, _ = np.linalg.qr(random.standard_normal((n_bits, n_bits)))
    rows = Z @ directions.astype(Z.dtype)
    return np.asarray(directions @ itq(rows, start[:k], _CCA_ITQ_ROUNDS))
