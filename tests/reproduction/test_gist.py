"""GIST: the descriptor of Oliva and Torralba, from folders of images to feature files."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="images need the extra images")
from PIL import Image

from reproduction.__main__ import main
from reproduction.gist import Gist

from ..drawing import scene

# Stored features of `scene` by the definition, step by step in double precision.
STORED = Path(__file__).parents[1] / "golden" / "gist_512.npy"


def test_the_stored_features_of_a_small_set():
    images = [scene(side, seed) for seed, side in enumerate((32, 32, 32, 64, 64, 48))]
    np.testing.assert_allclose(Gist().extract(images), np.load(STORED), rtol=0, atol=2e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (3, 2), (33, 47), (300, 7)])
def test_images_of_any_size(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    assert np.isfinite(Gist().extract([Gist().prepare(image)])).all()


def test_larger_images_are_shrunk_and_smaller_ones_kept():
    twice = np.kron(scene(128, 4), np.ones((2, 2, 1), dtype=np.uint8))
    assert Gist().prepare(twice).shape == (128, 128, 3)
    np.testing.assert_array_equal(Gist().prepare(scene(64, 4)), scene(64, 4))


def test_the_command_writes_features_and_labels(tmp_path):
    for seed, name in enumerate(("cat", "dog")):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(scene(32, seed)).save(tmp_path / "set" / name / "a.png")
    main(["features", str(tmp_path / "set"), str(tmp_path / "train.npy"), "--extractor", "gist"])
    expected = Gist().extract([scene(32, 0), scene(32, 1)])
    np.testing.assert_array_equal(np.load(tmp_path / "train.npy"), expected)
    assert np.load(tmp_path / "train.labels.npy").tolist() == ["cat", "dog"]
