"""Loader of a small convolutional network. Needs PyTorch and safetensors."""

import torch
from safetensors.torch import load_file
from torch.nn import functional


def load(path):
    weights = load_file(path)

    def layer(values, name, apply):
        return apply(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(values, name):
        statistics = [weights[f"{name}.{each}"] for each in ("running_mean", "running_var", "weight", "bias")]
        return functional.batch_norm(values, *statistics)

    @torch.inference_mode()
    def probabilities(x):
        """Probabilities (n, classes) of float32 images x, (n, height, width) or (n, height, width, channels)."""
        images = torch.from_numpy(x)
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
        maps = norm(torch.relu(layer(images, "convolution", functional.conv2d)), "convolution_norm")
        pooled = functional.max_pool2d(maps, 2)
        flat = pooled.permute(0, 2, 3, 1).flatten(1)  # channels last: the dense layer counts row, column, filter
        hidden = norm(torch.relu(layer(flat, "hidden", functional.linear)), "hidden_norm")
        return layer(hidden, "output", functional.linear).double().softmax(1).numpy()

    return probabilities
