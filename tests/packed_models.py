"""Hand-made models, rows for them, and a round trip through a file."""

import numpy as np

from bitclass import PackedModel
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.storage import load, save


def made(labels, n_bits=20, d=7, centre=True, scale=True, seed=0):
    rng = np.random.default_rng(seed)
    weights = pack(rng.standard_normal((len(labels), n_bits)) > 0)
    # Features of very different sizes, as raw ones have.
    sizes = 10.0 ** rng.integers(-6, 7, (d, 1))
    hash_function = HashFunction(
        (rng.standard_normal((d, n_bits)) * sizes).astype(np.float32),
        rng.standard_normal(n_bits),
        centre=rng.standard_normal(d).astype(np.float32) if centre else None,
        scale=rng.uniform(1e-3, 1e3, d).astype(np.float32) if scale else None,
    )
    given = {"rescore": 2, "temperature": 1.0 / 3.0, "summary": {"note": "über"}}
    return PackedModel(labels, weights, hash_function, **given)


def plain(projection, n_classes=2, labels=None):
    """A model whose weights are all zeros, of a projection (d, r)."""
    n_bits = projection.shape[1]
    labels = np.arange(n_classes) if labels is None else labels
    weights = np.zeros((len(labels), -(-n_bits // 8)), np.uint8)
    projection = np.asarray(projection, np.float32)
    return PackedModel(labels, weights, HashFunction(projection, np.zeros(n_bits)))


def rows(d=7, n=50, seed=1):
    return (3 * np.random.default_rng(seed).standard_normal((n, d))).astype(np.float32)


def saved(tmp_path, model, projection="float32"):
    path = tmp_path / "model.safetensors"
    save(path, model, projection=projection)
    return load(path)
