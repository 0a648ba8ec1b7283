from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.intp]
Texts: TypeAlias = Sequence[str | bytes]

def compiler() -> str: ...
def available_levels() -> list[str]: ...
def current_level() -> str: ...
def _use_level(name: str, /) -> None: ...
def _parallel_for(n_chunks: int, n_threads: int, run: Callable[[int], object], /) -> None: ...

class HammingIndex:
    @overload
    def __init__(self, weights: Codes, bias: Floats | None, /) -> None: ...
    @overload
    def __init__(
        self,
        weights: Codes,
        bias: Floats | None,
        centres: Codes,
        clusters: Longs,
        n_probe: int,
        /,
    ) -> None: ...
    def nearest(self, codes: Codes, n_threads: int, /) -> tuple[Longs, Ints]: ...
    def top_k(self, codes: Codes, k: int, n_threads: int, /) -> tuple[Longs, Ints]: ...
    def scores(self, codes: Codes, n_bits: int, n_threads: int, /) -> Ints: ...
    def counts(
        self, codes: Codes, n_bits: int, lists: Longs, width: int, n_threads: int, /
    ) -> tuple[Ints, Doubles]: ...

# The last result is the index of the first non-finite row, or the number of rows.
class Int8Projection:
    def __init__(
        self,
        weights: NDArray[np.int8],
        thresholds: Doubles,
        centre: Floats | None,
        inverse_scale: Floats | None,
        steps: Doubles,
        /,
    ) -> None: ...
    def encode(self, X: NDArray[Any], n_threads: int, /) -> tuple[Codes, int]: ...
    def nearest(
        self, index: HammingIndex, X: NDArray[Any], n_threads: int, /
    ) -> tuple[Longs, Ints, int]: ...
    def rescored(
        self,
        index: HammingIndex,
        X: NDArray[Any],
        n_candidates: int,
        k: int,
        n_threads: int,
        /,
    ) -> tuple[Longs, Ints, Ints, int]: ...

def pack_signs(scores: Floats, intercept: Floats, /) -> tuple[Codes, int]: ...
def rescore(
    index: HammingIndex,
    scores: Floats,
    intercept: Floats,
    n_candidates: int,
    k: int,
    n_threads: int,
    /,
) -> tuple[Longs, Ints, Ints, int]: ...
def sparse_scores(
    indptr: Longs, indices: Ints, data: Floats, projection: Floats, n_threads: int, /
) -> Floats: ...
def sparse_step(
    indptr: Longs,
    indices: Ints,
    data: Floats,
    gradients: Floats,
    size: float,
    projection: Floats,
    squares: Floats,
    counts: Ints,
    n_threads: int,
    /,
) -> None: ...

ROWS_PER_CHUNK: int
QUERIES_PER_CHUNK: int
TEXTS_PER_CHUNK: int
RELATIVE_TOLERANCE: float
MAX_CHARS: int
MAX_WORDS: int

class NgramExtractor:
    def __init__(
        self,
        column_bits: int,
        min_chars: int,
        max_chars: int,
        min_words: int,
        max_words: int,
        weights: Floats | None,
        /,
    ) -> None: ...
    def rows(self, texts: Texts, n_threads: int, /) -> tuple[Ints, Ints, Floats]: ...

class SparseProjection:
    def __init__(
        self,
        places: Ints,
        factors: Floats | None,
        projection: NDArray[np.int8],
        steps: Floats,
        intercept: Floats,
        /,
    ) -> None: ...
    def scores(self, indptr: Longs, indices: Ints, data: Floats, n_threads: int, /) -> Floats: ...
    def predict_texts(
        self,
        extractor: NgramExtractor,
        index: HammingIndex,
        texts: Texts,
        n_candidates: int,
        n_threads: int,
        /,
    ) -> tuple[Longs, Ints, Ints]: ...

def pair_sums(
    codes: Codes,
    weights: Codes,
    bit: int,
    own: Labels,
    row_weights: Doubles,
    tables: Doubles,
    sums: Doubles,
    n_threads: int,
    /,
) -> None: ...
def update_codes(
    codes: Codes,
    weights: Codes,
    own: Labels,
    row_weights: Doubles,
    n_bits: int,
    values: Doubles,
    log_step: float,
    n_threads: int,
    /,
) -> tuple[Codes, Doubles]: ...
def class_sums(
    X: NDArray[Any], labels: Labels, row_weights: Doubles, sums: Doubles, n_threads: int, /
) -> None: ...
def standardise(
    X: NDArray[Any],
    rows: Labels,
    shift: NDArray[Any],
    factor: NDArray[Any],
    out: NDArray[Any],
    n_threads: int,
    /,
) -> None: ...
def product(
    a: NDArray[Any], a_transposed: bool, b: NDArray[Any], b_transposed: bool, n_threads: int, /
) -> NDArray[Any]: ...
def add_gram(X: NDArray[Any], gram: Doubles, n_threads: int, /) -> None: ...

# False if the matrix is not positive definite.
def cholesky(matrix: NDArray[Any], n_threads: int, /) -> bool: ...
def solve_triangular(
    lower: NDArray[Any], b: NDArray[Any], transposed: bool, n_threads: int, /
) -> None: ...
def log_probabilities(
    scores: NDArray[np.float32],
    labels: NDArray[np.intp],
    shifts: NDArray[np.float32],
    sharpness: float,
    n_threads: int,
    /,
) -> NDArray[np.float32]: ...

# The loss, the inputs and the slopes.
def class_gradients(
    scores: Floats,
    weights: Floats,
    bias: Floats,
    log_shares: Floats,
    labels: Labels,
    factors: Floats,
    sharpness: tuple[float, float],
    n_signs: int,
    n_threads: int,
    /,
) -> tuple[float, Floats, Floats]: ...
def adam_step(
    left: Floats,
    right: Floats,
    rate: float,
    decay: tuple[float, float],
    tiny: float,
    values: Floats,
    means: Floats,
    squares: Floats,
    signs: Floats | None,
    n_threads: int,
    /,
) -> None: ...
