"""GIST, the energy of Gabor filters in a grid of blocks: the paper's CIFAR-10 features.

The descriptor of A. Oliva and A. Torralba, *Modeling the shape of the scene: a holistic
representation of the spatial envelope*, IJCV 42(3), 2001, with the transfer functions, contrast
normalisation, padding and order of features of the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image, Resampling, fromarray
from scipy import fft

from bitclass._native import effective_threads

__all__ = ["Gist"]

N_SCALES, N_ORIENTATIONS, N_BLOCKS = 4, 8, 4

# Filters: centre frequency of the first scale in cycles per pixel, ratio between scales, and radial
# and angular widths.
_FREQUENCY, _SCALE_RATIO, _RADIAL_WIDTH, _ANGULAR_WIDTH = 0.3, 1.85, 0.35, 16 / 32**2
# Pixels of mirrored border on all sides, so that the border of an image is not an edge.
_BORDER = 32
# Contrast normalisation: cut-off in cycles per image, pixels of mirrored border, and the floor of
# the deviation, which keeps flat regions flat.
_CONTRAST_CYCLES, _CONTRAST_BORDER, _CONTRAST_FLOOR = 4.0, 5, 0.2


@dataclass(frozen=True)
class Gist:
    """GIST-512: 4 scales x 8 orientations x 4 x 4 blocks of grey images.

    The centre square is shrunk to `size` pixels if it is larger, and kept if it is smaller: filters
    are defined in cycles per pixel, and enlarging the 32 pixels of CIFAR would only add blur.
    Feature ``(8 * scale + orientation) * 16 + 4 * column + row`` is the mean response in a block;
    scale 0 has the highest frequency.
    """

    size: int = 128

    name = "gist"
    n_features = N_SCALES * N_ORIENTATIONS * N_BLOCKS**2

    def prepare(self, image: Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The centre square, in 16 to `size` pixels."""
        whole = fromarray(image) if isinstance(image, np.ndarray) else image
        old = min(whole.size)
        side = min(max(old, 16), self.size)
        left, top = (whole.width - old) / 2, (whole.height - old) / 2
        box = (left, top, left + old, top + old)
        return np.asarray(whole.resize((side, side), Resampling.BILINEAR, box=box))

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images."""
        features = np.empty((len(images), self.n_features), dtype=np.float32)
        with ThreadPoolExecutor(effective_threads()) as pool:
            for row, found in enumerate(pool.map(_descriptor, images)):
                features[row] = found
        return features


def _descriptor(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Descriptor (512,) of an image (s, s, 3)."""
    grey = image.mean(axis=2)
    contrast = np.ptp(grey) or 1.0  # an image of one colour becomes zeros
    normalised = _local_contrast((grey - grey.min()) / contrast * 255)
    spectrum = fft.fft2(np.pad(normalised, _BORDER, mode="symmetric"))
    inside = slice(_BORDER, _BORDER + len(grey))
    response = np.abs(fft.ifft2(spectrum * _filters(len(spectrum))))[:, inside, inside]
    bounds = np.linspace(0, len(grey), N_BLOCKS + 1).astype(int)
    sums = np.add.reduceat(np.add.reduceat(response, bounds[:-1], axis=1), bounds[:-1], axis=2)
    means = sums / np.outer(np.diff(bounds), np.diff(bounds))
    return np.asarray(means.transpose(0, 2, 1).reshape(-1))


def _local_contrast(grey: NDArray[np.float64]) -> NDArray[np.float64]:
    """High-pass filter an image (s, s) from 0 to 255, and divide by its local deviation."""
    margin = _CONTRAST_BORDER
    odd = len(grey) % 2
    padded = np.pad(np.log1p(grey), (margin, margin + odd), mode="symmetric")
    frequencies = np.fft.fftfreq(len(padded), 1 / len(padded))
    squares = frequencies[:, None] ** 2 + frequencies**2
    low_pass = np.exp(-squares * np.log(2) / _CONTRAST_CYCLES**2)
    sharp = padded - fft.ifft2(fft.fft2(padded) * low_pass).real
    power = fft.ifft2(fft.fft2(sharp**2) * low_pass).real
    inside = slice(margin, margin + len(grey))
    even = sharp / (_CONTRAST_FLOOR + np.sqrt(np.abs(power)))
    return np.asarray(even[inside, inside])


@lru_cache(maxsize=8)
def _filters(n: int) -> NDArray[np.float64]:
    """Transfer functions (32, n, n) for images of n x n pixels, the highest frequency first."""
    frequencies = np.fft.fftfreq(n, 1 / n)
    radius = np.hypot(frequencies, frequencies[:, None]) / n
    angle = np.arctan2(frequencies[:, None], frequencies)
    filters = []
    for scale in range(N_SCALES):
        centre = _FREQUENCY / _SCALE_RATIO**scale
        for orientation in range(N_ORIENTATIONS):
            turned = angle + np.pi / N_ORIENTATIONS * orientation
            turned -= 2 * np.pi * (turned > np.pi)
            filters.append(
                np.exp(
                    -10 * _RADIAL_WIDTH * (radius / centre - 1) ** 2
                    - 2 * np.pi * _ANGULAR_WIDTH * N_ORIENTATIONS**2 * turned**2
                )
            )
    return np.array(filters)
