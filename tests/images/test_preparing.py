"""Pictures brought to the square that an extractor takes."""

import numpy as np
from drawing import scene
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.images.preparing import Preparation

SIDES = st.integers(1, 90)


@settings(max_examples=60, deadline=None)
@given(
    height=SIDES,
    width=SIDES,
    bounds=st.tuples(SIDES, SIDES).map(sorted),
    crop=st.sampled_from([0.5, 0.875, 1.0]),
    filter=st.sampled_from(["bilinear", "bicubic"]),
)
def test_preparing_twice_is_preparing_once(height, width, bounds, crop, filter):
    preparation = Preparation(*bounds, crop, filter)
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    once = preparation(picture)
    assert once.shape[0] == once.shape[1]
    assert bounds[0] <= once.shape[0] <= bounds[1]
    np.testing.assert_array_equal(preparation(once), once)


def test_the_middle_is_kept():
    picture = np.zeros((20, 60, 3), dtype=np.uint8)
    picture[:, 20:40] = 200
    found = Preparation(10, 10, 1.0, "bilinear")(picture)
    assert (found[:, 1:-1] == 200).all()  # pixels at the edge blend with what is beside it


def test_a_square_within_bounds_is_left_as_it_is():
    picture = scene(32, 0)
    assert Preparation(16, 32, 0.5, "bicubic")(picture) is picture


def test_it_goes_through_json():
    preparation = Preparation(16, 128, 0.875, "bicubic")
    assert Preparation.from_specification(preparation.specification()) == preparation
