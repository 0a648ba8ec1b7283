"""Features of any network of `timm`, where torch and timm are installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitclass.images.onnx_session import found_width, in_parts, normalised
from bitclass.images.preparing import Preparation

__all__ = ["TimmNetwork"]


@dataclass(frozen=True)
class TimmNetwork:
    """Pooled features of a network that `timm` knows by name.

    timm downloads the weights when it first needs them.

    Parameters
    ----------
    model : str
        Name such as "resnet18" or "vit_small_patch16_224.augreg_in1k".
    pretrained : bool, default=True
        False for random weights.

    Attributes
    ----------
    name : str
    n_features : int
    preparation : Preparation

    Examples
    --------
    >>> from bitclass.images import TimmNetwork
    >>> TimmNetwork("resnet18").n_features  # doctest: +SKIP
    512
    """

    model: str
    pretrained: bool = True

    name: ClassVar[str] = "timm"

    def __post_init__(self) -> None:
        # A name could also be an address, and a model file must not choose what is downloaded.
        if not re.fullmatch(r"[A-Za-z0-9_.]+", self.model):
            raise ValueError(f"model must be the name of a network of timm, found {self.model!r}")
        # What is wrong with the network must be told before any picture is opened.
        _ = self.n_features

    @cached_property
    def _network(self) -> Any:
        try:
            timm = importlib.import_module("timm")
        except (ImportError, RuntimeError) as error:  # the latter where versions do not fit
            raise ImportError(
                f"the extractor timm:{self.model} needs torch and timm; install them with: "
                f"pip install torch timm ({error})"
            ) from error
        if not timm.is_model(self.model.partition(".")[0]):
            raise ValueError(f"timm {timm.__version__} has no network {self.model!r}")
        try:
            network = timm.create_model(self.model, pretrained=self.pretrained, num_classes=0)
        except Exception as error:  # of the network, of the hub, of the name after the dot
            raise ValueError(f"timm cannot make {self.model!r}: {error}") from error
        return network.eval()

    @cached_property
    def _config(self) -> dict[str, Any]:
        data = importlib.import_module("timm.data")
        return dict(data.resolve_model_data_config(self._network))

    @cached_property
    def n_features(self) -> int:
        """Number of features, found out with a black picture.

        What networks say of themselves, `num_features`, is not what all of them give.
        """

        def complaint(shape: tuple[int, ...]) -> ValueError:
            return ValueError(
                f"timm:{self.model} must give one row of features a picture, and gives an array of "
                f"shape {shape} for one picture"
            )

        return found_width(self._run, self.preparation.smallest, complaint)

    @property
    def preparation(self) -> Preparation:
        """What pictures are brought to, as timm says of the network."""
        side = int(self._config["input_size"][-1])
        bilinear = self._config["interpolation"] == "bilinear"
        return Preparation(
            smallest=side,
            largest=side,
            crop=min(1.0, float(self._config["crop_pct"])),
            filter="bilinear" if bilinear else "bicubic",
        )

    def specification(self) -> dict[str, Any]:
        """All that tells this extractor from others, as JSON can hold it."""
        return {"kind": self.name, "model": self.model, "pretrained": self.pretrained}

    def extract(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of pictures.

        Parameters
        ----------
        pictures : n arrays of shape (h, w, 3), uint8, of any sizes

        Returns
        -------
        (n, n_features) float32
        """
        return in_parts(self._run, pictures, self.n_features)

    def _run(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        torch = importlib.import_module("torch")
        mean, std = (255 * np.asarray(self._config[part]) for part in ("mean", "std"))
        squares = np.stack([self.preparation(picture) for picture in pictures])
        with torch.inference_mode():
            features = self._network(torch.from_numpy(normalised(squares, mean, std)))
        return np.asarray(features.numpy(), dtype=np.float32)
