"""Networks beside torch, which `make test-images` installs."""

import os

import numpy as np
import pytest
from drawing import large_scenes, scene
from torch_reference import efficientnet_lite0_features

from bitclass.images import EfficientNetLite0, TimmNetwork, extractor_named, from_specification

pytestmark = pytest.mark.skipif(
    not os.environ.get("BITCLASS_TEST_IMAGES"),
    reason="compares networks with torch, 0.5 GB to install; run make test-images",
)


@pytest.fixture(scope="module")
def timm():
    """The library, even where torchvision is built for a GPU and torch is not."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # All that is missing then are operators that no network here needs.
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float iou) -> Tensor"
            )
    import timm

    return timm


def test_efficientnet_lite0_is_that_of_its_package():
    images = [*large_scenes(), *(scene(224, seed) for seed in range(4))]
    expected = efficientnet_lite0_features(images)
    assert expected.max() > 1
    np.testing.assert_allclose(EfficientNetLite0().extract(images), expected, rtol=0, atol=1e-3)


def test_any_network_of_timm(timm):
    import torch
    from PIL import Image

    torch.manual_seed(0)
    extractor = TimmNetwork("resnet18", pretrained=False)
    config = timm.data.resolve_model_data_config(extractor._network)
    transform = timm.data.create_transform(**config, is_training=False)
    images = [scene(side, seed) for seed, side in enumerate((300, 400, 256))]
    with torch.inference_mode():
        batch = torch.stack([transform(Image.fromarray(image)) for image in images])
        expected = extractor._network(batch).numpy()
    features = extractor.extract([extractor.preparation(image) for image in images])
    assert features.shape == (3, extractor.n_features) == (3, 512)
    # Resizing and cropping at once is not quite resizing and then cropping.
    assert (
        np.abs(features - expected).mean() < 0.4 * np.abs(expected - expected.mean(axis=0)).mean()
    )


def test_pixels_reach_a_network_of_timm_as_it_wants_them(timm):
    import torch

    extractor = TimmNetwork("resnet18", pretrained=False)
    image = scene(224, 0)  # taken as it is
    config = timm.data.resolve_model_data_config(extractor._network)
    mean, std = (torch.tensor(config[part])[:, None, None] for part in ("mean", "std"))
    pixels = (torch.from_numpy(image).permute(2, 0, 1) / 255 - mean) / std
    with torch.inference_mode():
        expected = extractor._network(pixels[None]).numpy()
    np.testing.assert_allclose(extractor.extract([image]), expected, rtol=0, atol=1e-3)


def test_a_network_of_timm_by_name(timm):
    again = from_specification({"kind": "timm", "model": "resnet18", "pretrained": False})
    assert again.specification() == {"kind": "timm", "model": "resnet18", "pretrained": False}
    with pytest.raises(ValueError, match="timm cannot make 'no_such_net'"):
        extractor_named("timm:no_such_net")


def test_the_width_of_a_network_of_timm_that_says_another(timm):
    extractor = extractor_named("timm:mobilenetv3_small_050,pretrained=false")
    features = extractor.extract([extractor.preparation(scene(64, 0))])
    assert features.shape == (1, extractor.n_features)
    assert extractor.n_features == extractor._network.head_hidden_size
