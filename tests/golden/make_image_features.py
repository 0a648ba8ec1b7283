"""Stored features of images by a reference network in torch.

Run after `make test-images`; only to be run again if the definition of a feature changes.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "images")]

from torch_reference import efficientnet_lite0_features  # noqa: E402

from drawing import large_scenes  # noqa: E402

if __name__ == "__main__":
    np.save(HERE / "efficientnet_lite0_1280.npy", efficientnet_lite0_features(large_scenes()))
