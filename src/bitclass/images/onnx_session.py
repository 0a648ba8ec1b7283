"""Networks run by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import effective_threads
from bitclass.images.pillow import import_images_extra

__all__ = ["Session", "found_width", "in_parts", "normalised"]

# Pictures that go through a network at once: more take memory, and no less time each.
_AT_ONCE = 16


class Session:
    """A network that takes one array and gives features.

    Parameters
    ----------
    model : bytes of an ONNX model
    output : which of its outputs to take; the first by default

    Attributes
    ----------
    input_shape : of the input, with text or None where a length is free
    input_type : as onnxruntime names it
    """

    def __init__(self, model: bytes, output: str | None = None) -> None:
        runtime = import_images_extra("onnxruntime", "running a network")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = effective_threads(None)
        options.log_severity_level = 4  # what goes wrong is raised; the log is not for users
        self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (source, *_) = self._session.get_inputs()
        self._input = source.name
        self.input_shape: list[Any] = list(source.shape)
        self.input_type: str = source.type
        self._output = output or self._session.get_outputs()[0].name

    @property
    def channels_last(self) -> bool:
        """Whether it takes pictures (n, h, w, 3)."""
        shape = self.input_shape
        return len(shape) == 4 and bool(shape[3] == 3 and shape[1] != 3)

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features (n, d) of a batch; where they have places, the mean over these.

        Raises
        ------
        ValueError
            If nobody can tell which axes are places.
        """
        (found,) = self._session.run([self._output], {self._input: batch})
        places = _places(np.shape(found), self.channels_last)
        return np.asarray(np.mean(found, axis=places) if places else found, dtype=np.float32)


def _places(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    """Axes of an output that are places: tokens (n, t, d), maps (n, d, h, w) or (n, h, w, d)."""
    if len(shape) < 3:
        return ()
    if len(shape) == 3:
        return (1,)
    if len(shape) > 4:
        raise ValueError(f"its output has the shape {shape}, of more axes than maps have")
    # Pictures are squares, and so are maps of them, whatever the network does within.
    _, second, third, last = shape
    if (second == third) != (third == last):
        return (2, 3) if third == last else (1, 2)
    if channels_last:
        raise ValueError(
            f"its output has the shape {shape}, of which nobody can tell whether features are the "
            "second axis or the last; choose another with output="
        )
    return (2, 3)


def normalised(
    pictures: NDArray[np.uint8], mean: ArrayLike, std: ArrayLike, *, channels_last: bool = False
) -> NDArray[np.float32]:
    """Pixels as a network takes them.

    Parameters
    ----------
    pictures : (n, s, s, 3)
    mean, std : number, or one for each colour, in units of pixels
    channels_last : whether the colours stay the last axis

    Returns
    -------
    (n, 3, s, s) or (n, s, s, 3) float32
    """
    values = pictures.astype(np.float32)
    values -= np.asarray(mean, np.float32)
    values /= np.asarray(std, np.float32)
    return values if channels_last else np.ascontiguousarray(values.transpose(0, 3, 1, 2))


def in_parts(
    run: Callable[[Sequence[NDArray[np.uint8]]], NDArray[np.float32]],
    pictures: Sequence[NDArray[np.uint8]],
    n_features: int,
) -> NDArray[np.float32]:
    """Features (n, d) of any number of pictures, a few at a time."""
    features = np.empty((len(pictures), n_features), dtype=np.float32)
    for start in range(0, len(pictures), _AT_ONCE):
        features[start : start + _AT_ONCE] = run(pictures[start : start + _AT_ONCE])
    return features


def found_width(
    run: Callable[[Sequence[NDArray[np.uint8]]], NDArray[np.float32]],
    side: int,
    complaint: Callable[[tuple[int, ...]], Exception],
) -> int:
    """Number of features, found out with a black picture.

    Parameters
    ----------
    run : gives the features of pictures
    side : pixels a side
    complaint : gives the error to raise where features of that shape are not one row a picture
    """
    features = run([np.zeros((side, side, 3), dtype=np.uint8)])
    if features.ndim != 2 or len(features) != 1 or features.shape[1] == 0:
        raise complaint(features.shape)
    return int(features.shape[1])
