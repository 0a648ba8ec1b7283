from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

def compiler() -> str: ...
def available_levels() -> list[str]: ...
def current_level() -> str: ...
def _use_level(name: str) -> None: ...
def _parallel_for(n_chunks: int, n_threads: int, run: Callable[[int], object]) -> None: ...

MAX_CHARS: int
MAX_WORDS: int
MAX_TEXT_BYTES: int

class NgramHasher:
    def __init__(
        self,
        column_bits: int,
        min_chars: int,
        max_chars: int,
        min_words: int,
        max_words: int,
        weights: NDArray[np.float32] | None,
    ) -> None: ...
    def rows(
        self, texts: Sequence[str | bytes], n_threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]: ...

class TextPredictor:
    def __init__(
        self,
        hasher: NgramHasher,
        places: NDArray[np.int32] | None,
        factors: NDArray[np.float32] | None,
        projection: NDArray[Any],
        steps: NDArray[np.float32] | None,
        intercept: NDArray[np.float32],
    ) -> None: ...
    def predict(
        self,
        index: HammingIndex,
        texts: Sequence[str | bytes],
        scale: NDArray[np.float32],
        n_candidates: int,
        indices: NDArray[np.int64],
        scores: NDArray[np.int32],
        distances: NDArray[np.int32],
        n_threads: int,
    ) -> None: ...

class HammingIndex:
    @overload
    def __init__(self, weights: NDArray[np.uint8]) -> None: ...
    @overload
    def __init__(
        self,
        weights: NDArray[np.uint8],
        centres: NDArray[np.uint8],
        clusters: NDArray[np.int64],
        n_probe: int,
    ) -> None: ...
    def nearest(
        self,
        codes: NDArray[np.uint8],
        indices: NDArray[np.int64],
        distances: NDArray[np.int32],
        n_threads: int,
    ) -> None: ...
    def top_k(
        self,
        codes: NDArray[np.uint8],
        indices: NDArray[np.int64],
        distances: NDArray[np.int32],
        n_threads: int,
    ) -> None: ...
    def scores(
        self,
        codes: NDArray[np.uint8],
        n_bits: int,
        scores: NDArray[np.int32],
        n_threads: int,
    ) -> None: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...

class Int8Projection:
    def __init__(
        self,
        weights: NDArray[np.int8],
        thresholds: NDArray[np.float64],
        centre: NDArray[np.float32] | None,
        inverse_scale: NDArray[np.float32] | None,
        steps: NDArray[np.float64],
    ) -> None: ...
    def encode(self, X: NDArray[Any], codes: NDArray[np.uint8], n_threads: int) -> int: ...
    def predict(
        self,
        index: HammingIndex,
        X: NDArray[Any],
        indices: NDArray[np.int64],
        distances: NDArray[np.int32],
        n_threads: int,
    ) -> int: ...
    def predict_rescored(
        self,
        index: HammingIndex,
        X: NDArray[Any],
        scale: NDArray[np.float32],
        n_candidates: int,
        indices: NDArray[np.int64],
        scores: NDArray[np.int32],
        distances: NDArray[np.int32],
        n_threads: int,
    ) -> int: ...

def pack_signs_float32(
    scores: NDArray[np.float32],
    intercept: NDArray[np.float32],
    codes: NDArray[np.uint8],
    n_threads: int,
) -> int: ...
def pack_signs_float64(
    scores: NDArray[np.float64],
    intercept: NDArray[np.float64],
    codes: NDArray[np.uint8],
    n_threads: int,
) -> int: ...
def rescore_float32(
    index: HammingIndex,
    values: NDArray[np.float32],
    intercept: NDArray[np.float32],
    scale: NDArray[np.float32],
    n_candidates: int,
    indices: NDArray[np.int64],
    scores: NDArray[np.int32],
    distances: NDArray[np.int32],
    n_threads: int,
) -> int: ...
def rescore_float64(
    index: HammingIndex,
    values: NDArray[np.float64],
    intercept: NDArray[np.float64],
    scale: NDArray[np.float32],
    n_candidates: int,
    indices: NDArray[np.int64],
    scores: NDArray[np.int32],
    distances: NDArray[np.int32],
    n_threads: int,
) -> int: ...
def widen(X: NDArray[np.float16], wide: NDArray[np.float32], n_threads: int) -> None: ...
def half_margins(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    own: NDArray[np.intp],
    half: NDArray[np.int16],
    n_threads: int,
) -> None: ...
def pair_sums(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    bit: int,
    own: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    tables: NDArray[np.float64],
    sums: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def flip_bits(
    H: NDArray[np.float64],
    g: NDArray[np.float64],
    w: NDArray[np.int8],
    n_threads: int,
) -> float: ...
def update_codes(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    own: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    n_bits: int,
    values: NDArray[np.float64],
    log_step: float,
    new_codes: NDArray[np.uint8],
    log_decreases: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def group_rows(
    labels: NDArray[np.intp],
    codes: NDArray[np.uint8],
    first: NDArray[np.intp],
    inverse: NDArray[np.intp],
    n_threads: int,
) -> int: ...
def class_sums_float32(
    X: NDArray[np.float32],
    labels: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    sums: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def class_sums_float64(
    X: NDArray[np.float64],
    labels: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    sums: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def sparse_scores_float32(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64] | None,
    places: NDArray[np.int32] | None,
    factors: NDArray[np.float32] | None,
    projection: NDArray[np.float32],
    steps: NDArray[np.float32] | None,
    scores: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def sparse_scores_int8(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64] | None,
    places: NDArray[np.int32] | None,
    factors: NDArray[np.float32] | None,
    projection: NDArray[np.int8],
    steps: NDArray[np.float32] | None,
    scores: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def sparse_step(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64] | None,
    gradients: NDArray[np.float32],
    size: float,
    projection: NDArray[np.float32],
    squares: NDArray[np.float32],
    counts: NDArray[np.int32],
    n_threads: int,
) -> None: ...
