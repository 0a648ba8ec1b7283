"""Searching a few clusters equals the NumPy reference; searching all equals the exact search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bitclass._native import HammingIndex
from bitclass._native import _kernels as kernels
from bitclass._native.prediction import cluster_codes
from bitclass.codes import hamming

from . import reference


def random_codes(rng, n, n_bytes, values=256):
    """Packed codes; few values make many equal distances."""
    return rng.integers(0, values, (n, n_bytes), dtype=np.uint8)


@given(
    n=st.integers(0, 40),
    n_classes=st.one_of(st.integers(1, 90), st.sampled_from([300, 1500])),
    n_bytes=st.sampled_from([1, 3, 8, 16, 17, 32, 40]),
    n_probe=st.integers(1, 200),
    values=st.sampled_from([1, 2, 256]),
    size=st.sampled_from([None, 3, 60, 1000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_nearest_and_top_k_equal_the_reference(
    level, n, n_classes, n_bytes, n_probe, values, size, seed
):
    rng = np.random.default_rng(seed)
    weights = random_codes(rng, n_classes, n_bytes, values)
    codes = random_codes(rng, n, n_bytes, values)
    bias = None
    if size is not None:
        bias = (size * rng.standard_normal(n_classes)).astype(np.float32)
    index = HammingIndex(weights, bias, n_probe)
    clusters = *cluster_codes(weights), min(n_probe, 4 * n_classes)
    for k in {1, min(16, n_classes), min(70, n_classes), n_classes}:
        expected = reference.top_k_of_clusters(codes, weights, *clusters, k, bias)
        for found, right in zip(index.top_k(codes, k), expected, strict=True):
            assert_array_equal(found, right)
    expected = reference.top_k_of_clusters(codes, weights, *clusters, 1, bias)
    for found, right in zip(index.nearest(codes), expected, strict=True):
        assert_array_equal(found, right[:, 0])


def test_ties_across_clusters_go_to_the_lowest_class(level):
    # Two centres at equal distance from the code: the lower class is in the cluster visited last.
    weights = np.array([[0b1100], [0b0011], [0b0011]], dtype=np.uint8)
    centres = np.array([[0b0011], [0b1100]], dtype=np.uint8)
    index = kernels.HammingIndex(weights, None, centres, np.array([1, 0, 0]), 2)
    indices, distances = index.top_k(np.array([[0b0110]], dtype=np.uint8), 2, 1)
    assert_array_equal(indices, [[0, 1]])
    assert_array_equal(distances, [[2, 2]])


@pytest.mark.parametrize("n_classes", [1, 2, 15, 400])
def test_each_class_is_in_the_cluster_of_its_nearest_centre(n_classes):
    weights = random_codes(np.random.default_rng(n_classes), n_classes, 5)
    centres, clusters = cluster_codes(weights)
    assert len(centres) == min(n_classes, 4 * int(n_classes**0.5))
    assert_array_equal(clusters, hamming(weights[:, None], centres[None]).argmin(axis=1))


def test_a_centre_has_the_bits_of_most_of_its_classes():
    weights = np.array([[0b0001], [0b0001], [0b0011], [0b1110]], dtype=np.uint8)
    centres, clusters = cluster_codes(np.repeat(weights, 100, axis=0))
    assert sorted(set(centres[clusters[:300]].ravel().tolist())) == [0b0001, 0b0011]
    assert set(centres[clusters[300:]].ravel().tolist()) == {0b1110}
