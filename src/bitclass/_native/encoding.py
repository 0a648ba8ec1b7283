"""The hash function: features to packed codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads
from bitclass.codes import packed_width

__all__ = ["Encoder", "Precision", "Projection", "QuantisedProjection", "quantise_projection"]

Precision = Literal["float32", "int8"]

_FEATURE_TYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))
# Scores that a block of rows may take: they stay in the last-level cache between the product and
# the packing. Smaller blocks make the threads of BLAS meet more often.
_BLOCK_SCORES = 1 << 20
# Features that a block of rows may take where they have to be copied.
_BLOCK_FEATURES = 1 << 22
_MIN_BLOCK_ROWS = 16

# The largest magnitude of a quantised number. -128 is left out, which keeps sums of two products
# within 16 bits.
QUANTISED_MOST = np.float32(127)
# A row whose largest entry is smaller, or not a finite number, is taken for a row of zeros.
LEAST_ENTRY = np.float32(1e-30)


class QuantisedProjection(NamedTuple):
    """A hash function in eight-bit integers.

    Attributes
    ----------
    weights : (d, r) int8, columns of the projection, each scaled by its own largest magnitude
    thresholds : (r,) float64, the intercept in the units of each column
    centre, inverse_scale : (d,) float32 or None, how rows are standardised before quantisation
    steps : (r,) float64, what 1 stands for in each column
    """

    weights: NDArray[np.int8]
    thresholds: NDArray[np.float64]
    centre: NDArray[np.float32] | None
    inverse_scale: NDArray[np.float32] | None
    steps: NDArray[np.float64]


def quantise_projection(
    projection: NDArray[np.float32],
    intercept: NDArray[np.float64],
    centre: NDArray[np.float32] | None = None,
    scale: NDArray[np.float32] | None = None,
) -> QuantisedProjection:
    """Quantise a hash function of rows x to eight-bit integers for rows (x - centre) / scale.

    Standardising has no part in the function itself; it makes the entries of a row alike in size,
    so that one scale per row serves all of them.

    Parameters
    ----------
    projection : (d, r) float32
    intercept : (r,) float64
    centre, scale : (d,) float32 or None
        None stands for 0 and 1.
    """
    folded = projection.astype(np.float64)
    inverse_scale = None
    if centre is not None or scale is not None:
        centre = np.zeros(len(projection), np.float32) if centre is None else centre
        scale = np.ones(len(projection), np.float32) if scale is None else scale
        intercept = intercept + (folded * centre[:, None]).sum(axis=0)
        folded *= scale[:, None]
        inverse_scale = np.float32(1) / scale
    largest = np.abs(folded).max(axis=0)
    unit = float(QUANTISED_MOST) / np.where(largest > 0, largest, QUANTISED_MOST)
    weights = np.rint(folded * unit).astype(np.int8)
    return QuantisedProjection(weights, intercept * unit, centre, inverse_scale, 1.0 / unit)


class Encoder(ABC):
    """What hash functions of dense and of sparse rows share: from scores to packed codes."""

    __slots__ = ()

    n_bits: int
    n_features: int
    _arguments: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    @property
    def quantised(self) -> _kernels.Int8Projection | None:
        """The compiled int8 projection; None where codes are made from scores."""
        return None

    @abstractmethod
    def check(self, X: Any) -> None:
        """Raise TypeError or ValueError unless `X` are rows that this can encode."""

    @abstractmethod
    def score_blocks(
        self, X: Any, threads: int
    ) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Scores in blocks of rows; X is checked already.

        Yields
        ------
        rows : slice
        scores : (rows, r) float32 or float64
            ``X[rows] @ projection``, valid until the next block.
        intercept : (r,) of the same type
        """

    def float_blocks(
        self, X: Any, threads: int, first_row: int = 0
    ) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """Slices of rows and their packed codes, made from scores."""
        for rows, scores, intercept in self.score_blocks(X, threads):
            codes = np.empty((len(scores), packed_width(self.n_bits)), dtype=np.uint8)
            in_float32 = scores.dtype == np.float32
            pack = _kernels.pack_signs_float32 if in_float32 else _kernels.pack_signs_float64
            # So little work that no other thread is woken for it.
            bad = pack(scores, intercept, codes, 1)
            require_finite(X[rows], bad, first_row + rows.start)
            yield rows, codes

    def encode(self, X: Any, *, first_row: int = 0) -> NDArray[np.uint8]:
        """Encode rows of features.

        Parameters
        ----------
        X : (n, d) float16, float32 or float64 of any strides, or SparseRows
        first_row : int
            Number of the first row, for errors.

        Returns
        -------
        (n, ceil(r / 8)) uint8
            Packed codes.

        Raises
        ------
        ValueError
            If a row is not finite, or too large for the numbers it is computed in.
        """
        self.check(X)
        threads = effective_threads()
        codes = np.empty((len(X), packed_width(self.n_bits)), dtype=np.uint8)
        if self.quantised is not None:
            for rows, block in adjacent_rows(X):
                bad = self.quantised.encode(block, codes[rows], threads)
                require_finite(block, bad, first_row + rows.start)
        else:
            for rows, block in self.float_blocks(X, threads, first_row):
                codes[rows] = block
        return codes


class Projection(Encoder):
    """A hash function ``sign(X @ projection + intercept)``, prepared for encoding.

    Parameters
    ----------
    projection : (d, r) float32
    intercept : (r,) float64
    precision : {"float32", "int8"}
        "float32" computes with NumPy's product, in the type of `X` (float16 in float32), in blocks
        of rows whose scores stay in the cache; its threads are those of NumPy's BLAS. A score
        closer to zero than the rounding of its sum may get another bit alone than in a batch.
        "int8" quantises rows on the fly and computes in integers, several times faster; of
        Gaussian features about one bit in 260 differs. Results equal
        :func:`bitclass._native.reference.encode_int8`.
    centre, scale : (d,) float32, optional
        For "int8" only: rows are quantised as ``(x - centre) / scale``, so that features of very
        different sizes keep their precision. The hash function is the same with and without.
    quantised : QuantisedProjection, optional
        The hash function in eight-bit integers, where it is known already: "int8" computes with
        this one.

    Examples
    --------
    >>> import numpy as np
    >>> hash_function = Projection(np.eye(2, dtype=np.float32), np.array([0.0, -2.0]))
    >>> hash_function.encode(np.array([[1.0, 1.0], [1.0, 3.0]], dtype=np.float32))
    array([[1],
           [3]], dtype=uint8)
    """

    __slots__ = ("_arguments", "_intercepts", "_projections", "_quantised", "n_bits", "n_features")

    def __init__(
        self,
        projection: NDArray[np.float32],
        intercept: NDArray[np.float64],
        precision: Precision = "float32",
        centre: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        quantised: QuantisedProjection | None = None,
    ) -> None:
        _require(projection, "projection", np.float32, 2)
        self.n_features, self.n_bits = projection.shape
        if self.n_features == 0 or self.n_bits == 0:
            raise ValueError(f"projection: expected no empty axis, found {projection.shape}")
        projection = np.ascontiguousarray(projection)
        _require(intercept, "intercept", np.float64, 1, self.n_bits)
        for name, values in (("centre", centre), ("scale", scale)):
            if values is not None:
                _require(values, name, np.float32, 1, self.n_features)
        if scale is not None and not (scale > 0).all():
            raise ValueError("scale: expected positive numbers only")
        if precision not in ("float32", "int8"):
            raise ValueError(f"precision: expected 'float32' or 'int8', found {precision!r}")
        self._arguments = (projection, intercept, precision, centre, scale, quantised)
        self._quantised: _kernels.Int8Projection | None = None
        if precision == "int8":
            in_integers = self.in_integers()
            if not np.isfinite(in_integers.thresholds).all():
                raise ValueError("intercept: too large beside the projection for int8 precision")
            self._quantised = _kernels.Int8Projection(*in_integers)
        # The operands of the product in each type; those of float64 are made when first needed.
        self._projections: dict[Any, NDArray[Any]] = {
            np.dtype(np.float32): np.ascontiguousarray(projection)
        }
        self._intercepts: dict[Any, NDArray[Any]] = {}

    @property
    def precision(self) -> Precision:
        """What the scores are computed in, "float32" or "int8"."""
        precision: Precision = self._arguments[2]
        return precision

    def check(self, X: NDArray[Any]) -> None:
        """Raise TypeError or ValueError unless `X` are rows of features of a type we encode."""
        if not isinstance(X, np.ndarray) or X.dtype not in _FEATURE_TYPES:
            found = getattr(X, "dtype", type(X).__name__)
            raise TypeError(f"X: expected an array of float16, float32 or float64, found {found}")
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X: expected shape (n, {self.n_features}), found {X.shape}")

    def score_blocks(
        self, X: NDArray[Any], threads: int
    ) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Scores by NumPy's product, see `Encoder`."""
        dtype = X.dtype if X.dtype != np.float16 else np.dtype(np.float32)
        projection, intercept = self._operands(dtype)
        block_rows = min(len(X), max(_MIN_BLOCK_ROWS, _BLOCK_SCORES // self.n_bits))
        if X.dtype == np.float16:
            most = max(_MIN_BLOCK_ROWS, _BLOCK_FEATURES // self.n_features)
            block_rows = min(block_rows, most)
            wide = np.empty((block_rows, self.n_features), dtype=dtype)
        scores = np.empty((block_rows, self.n_bits), dtype=dtype)
        for start in range(0, len(X), block_rows or 1):
            rows = slice(start, min(start + block_rows, len(X)))
            n = rows.stop - rows.start
            block = X[rows]
            if X.dtype == np.float16:
                _kernels.widen(_readable(block), wide[:n], threads)
                block = wide[:n]
            with np.errstate(over="ignore", invalid="ignore"):  # for the caller to refuse
                np.matmul(block, projection, out=scores[:n])
            yield rows, scores[:n], intercept

    @property
    def quantised(self) -> _kernels.Int8Projection | None:
        """The compiled int8 projection, None where the precision is float32."""
        return self._quantised

    def in_integers(self) -> QuantisedProjection:
        """The hash function in eight-bit integers: that which was given, or else made anew."""
        projection, intercept, _, centre, scale, given = self._arguments
        if given is not None:
            return QuantisedProjection(*given)
        with np.errstate(over="ignore", invalid="ignore"):
            return quantise_projection(projection, intercept, centre, scale)

    def _operands(self, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        projection = self._projections.get(dtype)
        if projection is None:
            projection = self._projections[dtype] = self._arguments[0].astype(dtype, order="C")
        intercept = self._intercepts.get(dtype)
        if intercept is None:
            intercept = self._intercepts[dtype] = self._arguments[1].astype(dtype)
        return projection, intercept


def adjacent_rows(X: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield slices and rows that a kernel can read: all at once, or copies of some at a time."""
    if _is_readable(X):
        yield slice(0, len(X)), X
        return
    block_rows = max(_MIN_BLOCK_ROWS, _BLOCK_FEATURES // max(1, X.shape[1]))
    for start in range(0, len(X), block_rows):
        rows = slice(start, min(start + block_rows, len(X)))
        yield rows, _readable(X[rows])


def require_finite(X: Any, bad: int, first_row: int) -> None:
    """Raise ValueError if `bad`, the first row whose sums are not finite, is one of `X`."""
    if bad >= len(X):
        return
    row = X[bad]
    columns = np.flatnonzero(~np.isfinite(row))
    where = f"row {first_row + bad}, feature "
    if len(columns) > 0:
        value = row[columns[0]]
        found = "NaN" if np.isnan(value) else f"infinity ({value})"
        raise ValueError(f"X must be finite: {where}{columns[0]} is {found}")
    largest = int(np.argmax(np.abs(row)))
    raise ValueError(f"X: {where}{largest} is {row[largest]:g}, too large to be encoded")


def _is_readable(X: NDArray[Any]) -> bool:
    """Whether the features of each row lie side by side."""
    flags = X.flags
    return flags.aligned and (flags.c_contiguous or X.strides[1] == X.itemsize)


def _readable(X: NDArray[Any]) -> NDArray[Any]:
    return X if _is_readable(X) else X.copy(order="C")


def _require(
    values: NDArray[Any], name: str, dtype: type, n_dims: int, length: int | None = None
) -> None:
    """Raise TypeError or ValueError unless `values` is a finite array of that type and shape."""
    if not isinstance(values, np.ndarray) or values.dtype != dtype:
        found = getattr(values, "dtype", type(values).__name__)
        raise TypeError(f"{name}: expected an array of {dtype.__name__}, found {found}")
    if values.ndim != n_dims or (length is not None and len(values) != length):
        expected = f"shape ({length},)" if length is not None else f"{n_dims} dimensions"
        raise ValueError(f"{name}: expected {expected}, found shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: expected finite numbers only")
