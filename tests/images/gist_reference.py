"""GIST of one grey image, step by step in double precision, as its authors define it."""

from __future__ import annotations

import numpy as np


def grid(n):
    """Frequencies across and down, in cycles an image, in the order of the transform."""
    line = np.fft.ifftshift(np.arange(-(n // 2), n - n // 2))
    return np.meshgrid(line, line)


def normalise_contrast(grey, cycles=4, border=5):
    padded = np.pad(np.log(grey + 1), border, mode="symmetric")
    side = len(padded)
    n = side + side % 2
    padded = np.pad(padded, (0, n - side), mode="symmetric")
    across, down = grid(n)
    width = cycles / np.sqrt(np.log(2))
    low_pass = np.exp(-(across**2 + down**2) / width**2)
    sharp = padded - np.fft.ifft2(np.fft.fft2(padded) * low_pass).real
    deviation = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(sharp**2) * low_pass)))
    return (sharp / (0.2 + deviation))[border : side - border, border : side - border]


def transfer(n, scale, orientation):
    across, down = grid(n)
    turned = np.arctan2(down, across) + np.pi * orientation / 8
    turned = (turned + np.pi) % (2 * np.pi) - np.pi
    centre = 0.3 / 1.85**scale
    radial = np.hypot(across, down) / n / centre - 1
    return np.exp(-10 * 0.35 * radial**2 - 2 * np.pi * (16 * 8**2 / 32**2) * turned**2)


def gist(image, border=32):
    """Descriptor (512,) of a square image (s, s, 3) of even side."""
    grey = image.astype(np.float64).mean(axis=2)
    grey = (grey - grey.min()) / (grey.max() - grey.min()) * 255
    padded = np.pad(normalise_contrast(grey), border, mode="symmetric")
    spectrum = np.fft.fft2(padded)
    values = []
    for scale in range(4):
        for orientation in range(8):
            filtered = np.fft.ifft2(spectrum * transfer(len(padded), scale, orientation))
            response = np.abs(filtered)[border:-border, border:-border]
            columns = np.array_split(response, 4, axis=1)
            values += [block.mean() for part in columns for block in np.array_split(part, 4)]
    return np.array(values)
