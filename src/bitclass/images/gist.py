"""GIST: the shape of a scene by the energy of Gabor filters in a grid of blocks.

The descriptor of A. Oliva and A. Torralba, *Modeling the shape of the scene: a holistic
representation of the spatial envelope*, IJCV 42(3), 2001, with the transfer functions, contrast
normalisation, padding and order of features of their own program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.images.preparation import Preparation

__all__ = ["Gist"]

N_SCALES, N_ORIENTATIONS, N_BLOCKS = 4, 8, 4

# Filters: centre frequency of the first scale in cycles per pixel, ratio between scales, and widths
# along and across the frequency.
_FREQUENCY, _SCALE_RATIO, _RADIAL_WIDTH, _ANGULAR_WIDTH = 0.3, 1.85, 0.35, 16 / 32**2
# Pixels of mirrored border on all sides, to keep the border of an image from acting as an edge.
_BORDER = 32
# Contrast normalisation: cut-off in cycles per image, pixels of mirrored border, and the floor of
# the deviation, which keeps flat regions flat.
_CONTRAST_CYCLES, _CONTRAST_BORDER, _CONTRAST_FLOOR = 4.0, 5, 0.2
# Transfer below this has no effect in float32.
_NEGLIGIBLE = 1e-8
# Pixels of the images that are transformed together: they fit into the cache of a core.
_PIXELS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Gist:
    """GIST-512: 4 scales x 8 orientations x 4 x 4 blocks, of grey images.

    Overall brightness and contrast have no effect. An image is cropped to its centre square, which
    is shrunk to `size` pixels if it is larger and kept as it is if it is smaller: enlarging adds no
    detail. Filters are defined in cycles per pixel, so features of images of different sizes cannot
    be compared: choose a `size` that few images fall below.

    Parameters
    ----------
    size : int, default=128
        Maximal side in pixels, 16 to 1024.

    Attributes
    ----------
    n_features : int, 512
        Feature ``(8 * scale + orientation) * 16 + 4 * column + row`` is the mean response in a
        block; scale 0 has the highest frequency.

    Examples
    --------
    >>> image = np.zeros((32, 32, 3), dtype=np.uint8)
    >>> image[:, ::4] = 255
    >>> features = Gist().extract([image])
    >>> features.shape, features.dtype
    ((1, 512), dtype('float32'))
    >>> energy = features.reshape(4, 8, 16).mean(axis=(0, 2))
    >>> int(energy.argmax())  # vertical stripes
    0
    """

    size: int = 128

    name: ClassVar[str] = "gist"
    n_features: ClassVar[int] = N_SCALES * N_ORIENTATIONS * N_BLOCKS**2

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 1024:
            raise ValueError(f"size must be 16 to 1024 pixels, found {self.size}")

    @property
    def preparation(self) -> Preparation:
        """What is done to every image first."""
        return Preparation(min_side=16, max_side=self.size, crop=1.0, filter="bilinear")

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features."""
        return {"kind": self.name, "size": self.size}

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images, see `Extractor`."""
        features = np.empty((len(images), self.n_features), dtype=np.float32)
        by_side = defaultdict(list)
        for row, image in enumerate(images):
            by_side[len(image)].append(row)

        def fill(rows: list[int]) -> None:
            grey = np.stack([images[row].mean(axis=2, dtype=np.float32) for row in rows])
            features[rows] = _descriptors(grey)

        parts = [
            rows[start : start + _together(side)]
            for side, rows in by_side.items()
            for start in range(0, len(rows), _together(side))
        ]
        with ThreadPoolExecutor(effective_threads(None)) as pool:
            list(pool.map(fill, parts))
        return features


def _together(side: int) -> int:
    """Number of images of this side that are transformed at once."""
    return max(1, _PIXELS_AT_ONCE // (side + 2 * _BORDER) ** 2)


def _descriptors(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Descriptors (n, 512) of grey images (n, s, s) of any range."""
    from scipy import fft  # here: a service of other models does without SciPy

    darkest = grey.min(axis=(1, 2), keepdims=True)
    contrast = grey.max(axis=(1, 2), keepdims=True) - darkest
    # An image of one colour becomes zeros.
    stretched = (grey - darkest) * (255 / np.where(contrast > 0, contrast, 1))
    normalised = _local_contrast(stretched)
    side = grey.shape[1]
    padded = np.pad(normalised, ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER)), mode="symmetric")
    spectrum = fft.fft2(padded, axes=(1, 2))
    responses = [bank.response(spectrum, side) for bank in _filters(side + 2 * _BORDER)]
    return np.stack(responses, axis=1).reshape(len(grey), -1)


def _local_contrast(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Images (n, s, s) from 0 to 255, high-pass filtered, in units of their local deviation."""
    from scipy import fft

    side = images.shape[1]
    margin = _CONTRAST_BORDER
    n = side + 2 * margin
    n += n % 2
    after = n - side - margin
    padded = np.pad(np.log1p(images), ((0, 0), (margin, after), (margin, after)), mode="symmetric")
    low_pass = _low_pass(n)
    sharp = padded - fft.irfft2(fft.rfft2(padded, axes=(1, 2)) * low_pass, axes=(1, 2))
    power = fft.irfft2(fft.rfft2(sharp**2, axes=(1, 2)) * low_pass, axes=(1, 2))
    inside = slice(margin, margin + side)
    even = sharp / (_CONTRAST_FLOOR + np.sqrt(np.abs(power)))
    return np.asarray(even[:, inside, inside], dtype=np.float32)


@lru_cache(maxsize=8)
def _low_pass(n: int) -> NDArray[np.float32]:
    """Gaussian low-pass of n x n pixels, 0.5 at `_CONTRAST_CYCLES`, (n, n // 2 + 1)."""
    down = np.fft.fftfreq(n, 1 / n)[:, None]
    across = np.fft.rfftfreq(n, 1 / n)
    transfer = np.exp(-(down**2 + across**2) * np.log(2) / _CONTRAST_CYCLES**2)
    return np.asarray(transfer, dtype=np.float32)


@dataclass(frozen=True)
class _Filter:
    """A transfer function, stored where it is not negligible."""

    band: NDArray[np.intp]  # (b,), columns of the spectrum that pass
    transfer: NDArray[np.float32]  # (n, b)
    transposed: bool  # whether these are columns of the transposed spectrum, where they are fewer

    def response(self, spectrum: NDArray[np.complex64], side: int) -> NDArray[np.float32]:
        """Mean magnitude of the filtered images in each block, (n_images, 16)."""
        from scipy import fft

        inside = slice(_BORDER, _BORDER + side)
        if self.transposed:
            spectrum = spectrum.transpose(0, 2, 1)
        # Only frequencies in the band are transformed along one axis, and only pixels inside the
        # border along the other: half the work of a full transform.
        passed = fft.ifft(spectrum[:, :, self.band] * self.transfer, axis=1, overwrite_x=True)
        half = np.zeros((len(spectrum), side, spectrum.shape[2]), dtype=np.complex64)
        half[:, :, self.band] = passed[:, inside]
        filtered = fft.ifft(half, axis=2, overwrite_x=True)[:, :, inside]
        # NumPy's own magnitude guards against overflow, at three times the cost.
        magnitude = np.sqrt(filtered.real**2 + filtered.imag**2)
        return _block_means(magnitude.transpose(0, 2, 1) if self.transposed else magnitude)


def _block_means(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of (n, s, s) in 4 x 4 blocks, column by column, (n, 16)."""
    starts, areas = _blocks(values.shape[1])
    sums = np.add.reduceat(np.add.reduceat(values, starts, axis=1), starts, axis=2)
    means = np.divide(sums, areas, dtype=np.float32)
    return means.transpose(0, 2, 1).reshape(len(values), -1)


@lru_cache(maxsize=8)
def _blocks(side: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Starts of the blocks along a side, (4,), and their numbers of pixels, (4, 4)."""
    bounds = np.linspace(0, side, N_BLOCKS + 1).astype(np.intp)
    lengths = np.diff(bounds)
    return bounds[:-1], np.outer(lengths, lengths).astype(np.float32)


@lru_cache(maxsize=8)
def _filters(n: int) -> tuple[_Filter, ...]:
    """Filters for images of n x n pixels, by scale, the highest frequency first."""
    frequencies = np.fft.fftfreq(n, 1 / n)
    across, down = frequencies[None, :], frequencies[:, None]
    radius, angle = np.hypot(across, down), np.arctan2(down, across)
    filters = []
    for scale in range(N_SCALES):
        centre = _FREQUENCY / _SCALE_RATIO**scale
        for orientation in range(N_ORIENTATIONS):
            turned = angle + np.pi / N_ORIENTATIONS * orientation
            turned -= 2 * np.pi * (turned > np.pi)
            transfer = np.exp(
                -10 * _RADIAL_WIDTH * (radius / n / centre - 1) ** 2
                - 2 * np.pi * _ANGULAR_WIDTH * N_ORIENTATIONS**2 * turned**2
            )
            bands = [np.flatnonzero(transfer.max(axis=1 - axis) > _NEGLIGIBLE) for axis in (0, 1)]
            transposed = len(bands[0]) <= len(bands[1])
            band = bands[0 if transposed else 1]
            kept = (transfer.T if transposed else transfer)[:, band].astype(np.float32)
            filters.append(_Filter(band, kept, transposed))
    return tuple(filters)
