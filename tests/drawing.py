"""Images that are the same everywhere: made of integers, by NumPy alone."""

import numpy as np


def scene(side, seed):
    """Boxes of some colours on a slope, and integer noise."""
    state = np.random.RandomState(seed)  # its numbers never change
    y, x = np.mgrid[:side, :side]
    image = np.stack([x * 2 + y, x + y * 2, x * 3], axis=2) * 64 // side
    for _ in range(6):
        left, top = state.randint(0, side, 2)
        width, height = state.randint(1, side // 2 + 1, 2)
        image[top : top + height, left : left + width] = state.randint(0, 220, 3)
    image += state.randint(0, 16, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


def large_scenes():
    """Images of the size that networks take, which nothing has to resize."""
    return [scene(224, 10), scene(224, 11)]
