"""Features of any network in an ONNX file."""

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
from bitclass.images.onnx_session import Session, found_width, in_parts, normalised
from bitclass.images.pillow import import_images_extra
from bitclass.images.preparing import Preparation

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "OnnxNetwork"]

#: Mean and standard deviation of the colours of ImageNet's pixels, which most networks expect.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

_CROP = 0.875
_MOST_BYTES = 2 << 30  # what the format itself can hold
_USUAL_SIZE = 224


@dataclass(frozen=True)
class OnnxNetwork:
    """Features of a network in an ONNX file, run by onnxruntime.

    Parameters
    ----------
    file : path of the file
    output : str, optional
        Name of the output to take, or of any value within the network. Where it has places, as the
        result of a convolution (n, d, h, w) or (n, h, w, d) and the tokens (n, t, d) of a
        transformer have, features are the mean over them. Needed where the network has several
        outputs.
    size : int, optional
        Pixels a side; what the network says, or 224.
    mean, std : number or three numbers
        The network is given (pixel - mean) / std, of pixels from 0 to 255.
    sha256 : str, optional
        What the content of the file must hash to.

    Attributes
    ----------
    name : str
    n_features : int
    preparation : Preparation

    Examples
    --------
    >>> from bitclass.images import OnnxNetwork
    >>> network = OnnxNetwork("resnet50.onnx", output="pooled", size=224)  # doctest: +SKIP
    >>> network.n_features  # doctest: +SKIP
    2048
    """

    file: str
    output: str | None = None
    size: int | None = None
    mean: float | tuple[float, ...] = IMAGENET_MEAN
    std: float | tuple[float, ...] = IMAGENET_STD
    sha256: str | None = None

    name: ClassVar[str] = "onnx"

    def __post_init__(self) -> None:
        for option, values in (("mean", self.mean), ("std", self.std)):
            if np.size(values) not in (1, 3) or not np.isfinite(values).all():
                raise ValueError(f"{option} must be one number or three, found {values!r}")
        if not (np.asarray(self.std) > 0).all():
            raise ValueError(f"std must be positive, found {self.std!r}")
        if self.size is not None and not 1 <= self.size <= 4096:
            raise ValueError(f"size must be 1 to 4096 pixels, found {self.size}")
        # What is wrong with the file must be told before any picture is opened.
        _ = self.n_features

    @cached_property
    def _content(self) -> bytes:
        path = Path(self.file)
        if not path.is_file():
            raise DataFileError(f"{path}: there is no such file")
        if path.stat().st_size > _MOST_BYTES:
            raise DataFileError(f"{path}: has more than {_MOST_BYTES >> 30} GB")
        content = path.read_bytes()
        if self.sha256 is not None and hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataFileError(
                f"{path}: has changed since features were taken with it: other features would come "
                "of it"
            )
        return content

    @cached_property
    def _session(self) -> Session:
        content = self._content
        try:
            session = Session(*_with_output(content, self.output))
        except ImportError:
            raise
        except Exception as error:  # of the libraries, each has its own
            raise DataFileError(
                f"{self.file}: cannot be used as an ONNX network ({error})"
            ) from error
        if session.input_type != "tensor(float)" or len(session.input_shape) != 4:
            raise DataFileError(
                f"{self.file}: must take float32 pictures (n, 3, h, w) or (n, h, w, 3), and takes "
                f"{session.input_type} of shape {session.input_shape}"
            )
        return session

    @cached_property
    def _side(self) -> int:
        shape = self._session.input_shape
        side = shape[1] if self._session.channels_last else shape[2]
        if self.size is not None:
            return self.size
        return side if isinstance(side, int) and side > 0 else _USUAL_SIZE

    @cached_property
    def n_features(self) -> int:
        """Number of features, found out with a black picture."""

        def complaint(shape: tuple[int, ...]) -> DataFileError:
            return DataFileError(
                f"{self.file}: its output must be one row of features a picture, found an array of "
                f"shape {shape} for one picture"
            )

        return found_width(self._run, self._side, complaint)

    @property
    def preparation(self) -> Preparation:
        """What pictures are brought to."""
        return Preparation(smallest=self._side, largest=self._side, crop=_CROP, filter="bicubic")

    def specification(self) -> dict[str, Any]:
        """All that tells this extractor from others, as JSON can hold it."""
        return {
            "kind": self.name,
            "file": str(Path(self.file).absolute()),
            "output": self.output,
            "size": self._side,
            "mean": np.atleast_1d(self.mean).tolist(),
            "std": np.atleast_1d(self.std).tolist(),
            "sha256": hashlib.sha256(self._content).hexdigest(),
        }

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
        squares = np.stack([self.preparation(picture) for picture in pictures])
        batch = normalised(squares, self.mean, self.std, channels_last=self._session.channels_last)
        try:
            if self._session.input_shape[0] == 1:  # networks that take one picture at a time
                return np.concatenate([self._session.run(row[None]) for row in batch])
            return self._session.run(batch)
        except Exception as error:  # onnxruntime has its own errors
            raise DataFileError(
                f"{self.file}: fails on pictures of {self._side} x {self._side} ({error})"
            ) from error


def _with_output(content: bytes, output: str | None) -> tuple[bytes, str]:
    """A model that has this output, and the name of it; values within can be made outputs."""
    onnx = import_images_extra("onnx", "the extractor onnx")
    model = onnx.load_model_from_string(content)
    outputs = [value.name for value in model.graph.output]
    if output is None:
        if len(outputs) != 1:
            raise ValueError(f"name one of its outputs with output=: {', '.join(outputs)}")
        return content, outputs[0]
    if output in outputs:
        return content, output
    if not any(output in node.output for node in model.graph.node):
        raise ValueError(f"it has no output {output!r}; its outputs are: {', '.join(outputs)}")
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    return model.SerializeToString(), output
