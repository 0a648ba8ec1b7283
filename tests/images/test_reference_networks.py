"""Networks compared with torch, which `make test-images` installs."""

import os

import numpy as np
import pytest

from bitclass.images import extractor_named

from ..drawing import large_scenes, scene
from .torch_reference import efficientnet_lite0_features

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("BITCLASS_TEST_IMAGES"),
        reason="compares networks with torch, 0.5 GB to install; run make test-images",
    ),
]


def test_efficientnet_lite0_is_that_of_its_package():
    images = [*large_scenes(), *(scene(224, seed) for seed in range(4))]
    expected = efficientnet_lite0_features(images)
    assert expected.max() > 1
    np.testing.assert_allclose(extractor_named("cnn").extract(images), expected, rtol=0, atol=1e-3)
