"""NumPy references of the kernels: slow, plain, and the definition of their results.

Bit-identical results need sums whose order is part of the contract. Wherever a sum decides a bit,
its terms are added sequentially in index order (`_running_sum`), which a kernel can reproduce
with any vector width and any number of threads.

Half margins are used: the margin m = w_c.b - w_y.b is even, and its half is
``Hamming(w_y, b) - Hamming(w_c, b)``, an integer in [-r, r].
"""

import numpy as np

from bitclass._native.paper import RELATIVE_TOLERANCE
from bitclass._native.prediction import MAX_DEVIATIONS, MIN_ENTRY, QUANTISED_MAX
from bitclass.codes import hamming, pack, unpack


def _running_sum(terms, axis):
    """Sum along `axis`, adding the terms strictly in order (`np.sum` adds them pairwise)."""
    if terms.shape[axis] == 0:
        return np.zeros(np.delete(terms.shape, axis))
    return np.take(np.add.accumulate(terms, axis=axis), -1, axis=axis)


def encode(X, projection, intercept):
    """Codes ``pack(sign(X @ projection + intercept))``; half floats are computed in float32."""
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    scores = X @ projection.astype(X.dtype, copy=False)
    scores += intercept.astype(X.dtype, copy=False)
    return pack(scores >= 0)


def encode_int8(X, quantised):
    """Codes of rows, computed in eight-bit integers.

    Each row is scaled by its largest magnitude. A sign does not depend on scales, so nothing
    is scaled back: only the thresholds are multiplied by the factor of the row.
    """
    sums, factors = _integer_sums(X, quantised)
    return pack(sums + quantised.thresholds * factors.astype(np.float64) >= 0)


def _integer_sums(X, quantised):
    """Integer products (n, r) of quantised rows, and the factors (n, 1) the rows were scaled by."""
    entries = X.astype(np.float32)
    if quantised.centre is not None and quantised.inverse_scale is not None:
        entries = (entries - quantised.centre) * quantised.inverse_scale
    largest = np.abs(entries).max(axis=1, keepdims=True)
    usable = (largest >= MIN_ENTRY) & np.isfinite(largest)
    if quantised.centre is not None:
        entries = entries.clip(-MAX_DEVIATIONS, MAX_DEVIATIONS)
        largest = np.minimum(largest, MAX_DEVIATIONS)
    entries = np.where(usable, entries, np.float32(0))
    factors = np.divide(QUANTISED_MAX, largest, out=np.ones_like(largest), where=usable)
    integers = np.rint(entries * factors)
    # Integers this small are exact in float64, whatever the order of the sums.
    return integers.astype(np.float64) @ quantised.weights.astype(np.float64), factors


def even(bias):
    """Biases (C,) rounded to the nearest even integers, ties to multiples of 4."""
    return 0 if bias is None else 2 * np.rint(bias.astype(np.float64) / 2).astype(np.int64)


def nearest(codes, weights, bias=None):
    """See :func:`bitclass._native.HammingIndex.nearest`."""
    indices, distances = top_k(codes, weights, 1, bias)
    return indices[:, 0], distances[:, 0]


def top_k(codes, weights, k, bias=None):
    """See :func:`bitclass._native.HammingIndex.top_k`."""
    distances = hamming(codes[:, None], weights[None])
    indices = np.argsort(2 * distances.astype(np.int64) - even(bias), axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(distances, indices, axis=1).astype(np.int32)


def top_k_of_clusters(codes, weights, centres, clusters, n_probe, k, bias=None):
    """Find the k nearest of the classes in the clusters nearest to each code.

    Clusters are visited in the order of their distance, then of their number: `n_probe` of them,
    and as many more as it takes to have k classes.
    """
    indices = np.empty((len(codes), k), dtype=np.int64)
    distances = np.empty((len(codes), k), dtype=np.int32)
    order, _ = top_k(codes, centres, len(centres))
    n_held = np.cumsum(np.bincount(clusters, minlength=len(centres))[order], axis=1)
    for i in range(len(codes)):
        n_visited = max(n_probe, int(np.searchsorted(n_held[i], k)) + 1)
        visited = np.flatnonzero(np.isin(clusters, order[i, :n_visited]))
        own = None if bias is None else bias[visited]
        found, distances[i] = top_k(codes[i : i + 1], weights[visited], k, own)
        indices[i] = visited[found[0]]
    return indices, distances


def scores(codes, weights, n_bits, bias=None):
    """Scores ``w_c.b + e_c`` of codes (n, bytes) and weights (C, bytes), shape (n, C)."""
    products = unpack(codes, n_bits).astype(np.int32) @ unpack(weights, n_bits).astype(np.int32).T
    return np.asarray(products + even(bias), dtype=np.int32)


def activations(x):
    """``tanh(x)`` in steps of 1/127, by a rational approximation, the same on every machine."""
    one = np.float32
    x = np.where(x < one(4), x, one(4))
    x = np.where(x > one(-4), x, one(-4))
    square = x * x
    numerator = x * ((one(127) * square + one(13335)) * square + one(120015))
    denominator = (one(15) * square + one(420)) * square + one(945)
    return np.asarray(np.rint(numerator / denominator), dtype=np.int8)


def activations_int8(X, quantised):
    """``tanh(P'x + t)`` (n, r) from the integer sums of :func:`encode_int8`."""
    sums, factors = _integer_sums(X, quantised)
    intercept = (quantised.thresholds * quantised.steps).astype(np.float32)
    units = quantised.steps.astype(np.float32) * (np.float32(1) / factors)
    return activations(sums.astype(np.float32) * units + intercept)


def rescored(codes, active, weights, n_candidates, k, bias=None):
    """The k best of the nearest classes, by their inner products with activations (n, r).

    See :func:`bitclass.hash_function.HashFunction.rescored`; scores are in steps of 1 / 127.
    """
    indices, distances = top_k(codes, weights, n_candidates, bias)
    signs = unpack(weights, active.shape[1]).astype(np.int32)[indices]
    scores = np.einsum("nmr,nr->nm", signs, active.astype(np.int32))
    if bias is not None:
        scores = scores + np.rint(bias.astype(np.float64) * 127).astype(np.int32)[indices]
    # Candidates are ordered by distance and bias, then by index, which breaks ties.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best, products, apart = (
        np.take_along_axis(values, order, axis=1) for values in (indices, scores, distances)
    )
    return best, products.astype(np.int32), apart


# -- Training


def half_margins(codes, weights, y):
    """Half margins (n, C): those of codes with class weights, less those with their own class's."""
    distances = hamming(codes[:, None], weights[None])
    y_distances = np.take_along_axis(distances, y[:, None], axis=1)
    return (y_distances - distances).astype(np.int16)


def pair_sums(codes, weights, bit, y, row_weights, tables, sums):
    """See :func:`bitclass._native.paper.pair_sums`."""
    n_bits = (tables.shape[1] - 1) // 2
    half = half_margins(codes, weights, y)
    bits = unpack(codes, bit + 1)[:, bit]
    weight_bits = unpack(weights, bit + 1)[:, bit]
    for q in np.unique(y):
        rows = slice(*np.searchsorted(y, [q, q + 1]))
        others = np.arange(half.shape[1]) != q
        step = ((weight_bits - weight_bits[q]) // 2)[others]
        for side, sign in enumerate((1, -1)):
            chosen = bits[rows] == sign
            without_bit = half[rows][chosen][:, others] - step * sign
            terms = tables[:, without_bit + n_bits] * row_weights[rows][chosen, None]
            before = sums[side, :, q][:, None, others]
            sums[side, :, q, others] = _running_sum(np.concatenate([before, terms], 1), axis=1).T


def update_codes(codes, weights, y, row_weights, n_bits, values, log_step):
    """See :func:`bitclass._native.paper.update_codes`."""
    bits = unpack(codes, n_bits)
    weight_bits = unpack(weights, n_bits)
    half = half_margins(codes, weights, y).astype(np.int64)
    rows = np.arange(len(codes))
    top = np.zeros(len(codes), dtype=np.int64)
    log_decreases = np.full(n_bits, -np.inf)
    for k in range(n_bits):
        if log_step:
            of_others = half.copy()
            of_others[rows, y] = -n_bits
            top = of_others.max(axis=1)
        # Flipping the bit moves a half margin by -(p - q) * b, which is 0 if p and q are equal.
        step = (weight_bits[None, :, k] - weight_bits[y, k][:, None]) * bits[:, [k]]
        at = half - top[:, None] + 2 * n_bits
        present = _running_sum(np.where(step != 0, values[at], 0.0), axis=1)
        flipped = _running_sum(np.where(step != 0, values[at - step], 0.0), axis=1)
        better = flipped < present - RELATIVE_TOLERANCE * present
        bits[better, k] = -bits[better, k]
        half[better] -= step[better]
        better &= row_weights > 0
        if better.any():
            logs = np.log((row_weights * (present - flipped))[better]) + log_step * top[better]
            log_decreases[k] = np.logaddexp.reduce(logs)
    return pack(bits), log_decreases


def class_sums(X, labels, row_weights, sums):
    """See :func:`bitclass._native.training.class_sums`."""
    terms = X.astype(np.float64)
    if row_weights is not None:
        terms *= row_weights[:, None]
    np.add.at(sums, labels, terms)
