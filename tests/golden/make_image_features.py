"""Stored features of images by a reference network in torch.

Run by `python -m tests.golden.make_image_features` after `make test-images`, and again only if the
definition of a feature changes.
"""

from pathlib import Path

import numpy as np

from ..drawing import large_scenes
from ..images.torch_reference import efficientnet_lite0_features

HERE = Path(__file__).parent

if __name__ == "__main__":
    np.save(HERE / "efficientnet_lite0_1280.npy", efficientnet_lite0_features(large_scenes()))
