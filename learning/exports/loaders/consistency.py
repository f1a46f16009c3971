"""Loader of the network of a consistency student. Needs PyTorch and safetensors."""

import torch
from safetensors.torch import load_file
from torch import nn


def load(path):
    weights = load_file(path)
    height, width, *channels = weights.pop("record_shape").tolist()
    stride = 2 if min(height, width) >= 16 else 1
    filters = len(weights["0.weight"])
    layers = [nn.Conv2d(channels[0] if channels else 1, filters, 5, stride, 2, bias=False)]
    height, width = -(-height // stride), -(-width // stride)
    for before, after in ((filters, 2 * filters), (2 * filters, 4 * filters), (4 * filters, 0)):
        layers += [nn.BatchNorm2d(before), nn.ReLU()]
        if after:
            layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False)]
            if min(height, width) >= 4:
                layers += [nn.MaxPool2d(2)]
                height, width = height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(4 * filters * height * width, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU()]
    classes = weights[f"{len(layers)}.bias"].shape[0]
    network = nn.Sequential(*layers, nn.Linear(128, classes)).eval()
    network.load_state_dict(weights)

    @torch.inference_mode()
    def probabilities(x):
        """Probabilities (n, classes) of float32 images x, (n, height, width) or (n, height, width, channels)."""
        images = torch.from_numpy(x)
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
        return network(images).double().softmax(1).numpy()

    return probabilities
