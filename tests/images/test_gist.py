"""GIST: the descriptor of Oliva and Torralba, whatever the batch."""

from pathlib import Path

import gist_reference
import numpy as np
import pytest
from drawing import grating, scene, scenes

import bitclass
from bitclass.images import Gist


def features_of(images, **options):
    """Features of images of any size."""
    extractor = Gist(**options)
    return extractor.extract([extractor.preparation(image) for image in images])


STORED = Path(__file__).parents[1] / "golden" / "gist_512.npy"


def by_filter(features):
    """Energy (n, scales, orientations)."""
    return features.reshape(-1, 4, 8, 16).mean(axis=3)


def test_the_stored_features_of_a_small_set():
    np.testing.assert_allclose(Gist().extract(scenes()), np.load(STORED), rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", [16, 20, 32, 64, 100, 128])
def test_it_is_the_descriptor_as_defined(side):
    images = [scene(side, seed) for seed in range(3)]
    expected = [gist_reference.gist(image) for image in images]
    np.testing.assert_allclose(Gist().extract(images), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 500), (3, 2), (16, 16), (33, 47), (97, 97), (300, 7)]
)
def test_images_of_any_size(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    features = features_of([image])
    assert features.shape == (1, 512)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_a_batch_of_all_sizes_is_as_one_by_one():
    images = [scene(side, seed) for seed, side in enumerate([32, 64, 32, 200, 64, 17, 32])]
    alone = np.concatenate([features_of([image]) for image in images])
    np.testing.assert_allclose(features_of(images), alone, rtol=0, atol=1e-6)


def test_the_number_of_threads_changes_nothing():
    images = [scene(32, seed) for seed in range(70)]
    before = bitclass.set_num_threads(1)
    try:
        alone = features_of(images)
        bitclass.set_num_threads(3)
        np.testing.assert_array_equal(features_of(images), alone)
    finally:
        bitclass.set_num_threads(before)


@pytest.mark.parametrize("level", [0, 77, 255])
def test_an_image_of_one_colour_has_no_energy(level):
    features = features_of([np.full((40, 40, 3), level, dtype=np.uint8)])
    np.testing.assert_allclose(features, 0, atol=1e-6)


@pytest.mark.parametrize("orientation", range(8))
def test_gratings_find_their_orientation(orientation):
    # The filters turn against the angle of the frequency.
    energy = by_filter(features_of([grating(64, 0.2, -np.pi * orientation / 8)]))[0]
    assert energy.sum(axis=0).argmax() == orientation
    across = energy.sum(axis=0)[(orientation + 4) % 8]
    assert energy.sum(axis=0)[orientation] > 3 * across


@pytest.mark.parametrize("scale", range(4))
def test_gratings_find_their_scale(scale):
    energy = by_filter(features_of([grating(128, 0.3 / 1.85**scale, 0.0)]))[0]
    assert energy[:, 0].argmax() == scale


@pytest.mark.parametrize("size", [15, 1025, -1])
def test_sizes_that_make_no_sense(size):
    with pytest.raises(ValueError, match=f"size must be 16 to 1024 pixels, found {size}"):
        Gist(size=size)


def test_larger_images_are_shrunk_and_smaller_ones_kept():
    image = scene(64, 4)
    twice = np.kron(image, np.ones((2, 2, 1), dtype=np.uint8))
    small, large = features_of([image], size=64), features_of([twice], size=64)
    assert np.corrcoef(small[0], large[0])[0, 1] > 0.95
    np.testing.assert_array_equal(features_of([image], size=128), small)
