"""Networks of timm, with a small stand-in for timm and torch, which few tests need."""

import contextlib
import sys
import types

import numpy as np
import pytest
from drawing import scene

from bitclass.images import TimmNetwork, extractor_named


class Tensor:
    """As much of a torch tensor as networks are given and give here."""

    def __init__(self, values):
        self.values = values

    def numpy(self):
        return self.values


class Network:
    """A network that gives the mean colours, twice, and says that it gives more."""

    num_features = 960

    def __init__(self, shape):
        self.shape = shape

    def eval(self):
        return self

    def __call__(self, batch):
        colours = batch.values.mean(axis=(2, 3))
        return Tensor(np.concatenate([colours, colours], axis=1).reshape(-1, *self.shape))


@pytest.fixture
def made(monkeypatch):
    """Put stand-ins in the place of timm and torch; the networks that are asked for."""
    asked = []

    def create_model(name, *, pretrained, num_classes):
        asked.append((name, pretrained, num_classes))
        return Network((2, 3) if name == "unpooled" else (6,))

    config = {"input_size": (3, 16, 16), "interpolation": "bicubic", "crop_pct": 0.9,
              "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}  # fmt: skip
    modules = {
        "timm": {"__version__": "1", "is_model": lambda name: True, "create_model": create_model},
        "timm.data": {"resolve_model_data_config": lambda network: config},
        "torch": {"inference_mode": contextlib.nullcontext, "from_numpy": Tensor},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return asked


def test_the_width_is_what_the_network_gives_not_what_it_says(made):
    extractor = TimmNetwork("mobilenetv3_large_100")
    assert extractor.n_features == 6
    picture = scene(16, 0)
    features = extractor.extract([picture, picture])
    expected = (picture.mean(axis=(0, 1)) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(features, [np.tile(expected, 2)] * 2, rtol=1e-4, atol=1e-5)
    assert made == [("mobilenetv3_large_100", True, 0)]


def test_a_network_that_gives_no_rows_is_told_at_once(made):
    with pytest.raises(ValueError, match=r"timm:unpooled must give one row .* shape \(1, 2, 3\)"):
        TimmNetwork("unpooled")


@pytest.mark.parametrize(("text", "pretrained"), [("true", True), ("false", False)])
def test_random_weights_by_name(made, text, pretrained):
    extractor = extractor_named(f"timm:resnet18,pretrained={text}")
    assert extractor == TimmNetwork("resnet18", pretrained=pretrained)
    assert made[0] == ("resnet18", pretrained, 0)
