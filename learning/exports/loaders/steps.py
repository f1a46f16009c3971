"""Loader of what private gradient steps led to. Needs PyTorch, safetensors and NumPy."""

import io

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional


def part(state, name):
    return {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}.")}


def channels_first(x, dtype):
    images = torch.from_numpy(x.astype(dtype))
    return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def encode(kind, state, x):
    """Whole-number features (n, width) of float32 records x."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    if kind == "columns":
        return np.clip(np.rint(flat / state["units"]), -(2.0**16), 2.0**16)
    if kind == "thresholds":
        return (flat[:, state["columns"]] > state["thresholds"]).astype(np.float64)
    if kind == "joined":
        parts = enumerate(state["parts"].tolist())
        return np.concatenate([encode(each, part(state, str(place)), x) for place, each in parts], axis=1)
    return wavelets(state, x) if kind == "wavelets" else network(state, x)


def wavelets(state, x):
    """Square roots of the moduli of pairs of filters, summed over cells, and pixels, summed over blocks."""

    def sums(maps, side, whole=True):
        return functional.avg_pool2d(maps, side, ceil_mode=whole, divisor_override=1)

    filters, shape = torch.from_numpy(state["filters"].astype(np.float32)), state["shape"].tolist()
    reduction = max(1, min(shape[:2]) // 28)
    side = min(shape[:2]) // reduction
    stride = 2 if side >= 14 else 1
    images = channels_first(np.rint(x.astype(np.float64).clip(0, 1) * 255), np.float32)
    if reduction > 1:
        images = torch.round(sums(images, reduction, whole=False) / reduction**2)
    grey = torch.round(images.sum(1, keepdim=True) / images.shape[1])
    responses = functional.conv2d(grey, filters[:, None], stride=stride, padding=filters.shape[1] // 2)
    squares = torch.round(responses / 4096) ** 2
    roots = torch.round(torch.sqrt(torch.sqrt(squares[:, 0::2] + squares[:, 1::2])) * 64)
    cells, blocks = sums(roots, max(1, round(side / stride / 7))), sums(images, max(1, side // 7))
    return torch.cat([cells.flatten(1), blocks.flatten(1)], 1).double().numpy()


def network(state, x):
    """A network in whole numbers: every layer is rounded, and cut off where it has a divisor."""
    values = np.clip(np.rint(x.astype(np.float64) / state["first"]), -(2.0**15), 2.0**15)
    values = torch.from_numpy(values) if x.ndim == 2 else channels_first(values, np.float64)
    for place, kind in enumerate(state["kinds"].tolist()):
        stride, padding, divisor = state[f"{place}.numbers"].tolist()
        if kind == "rectify":
            values = torch.relu(values)
        elif kind == "flatten":
            values = values.flatten(1)
        elif kind == "max_pool":
            values = functional.max_pool2d(values, int(stride))
        else:
            weight, bias = (torch.from_numpy(state[f"{place}.{name}"]) for name in ("weight", "bias"))
            if kind == "convolution":
                values = functional.conv2d(values, weight, stride=int(stride), padding=int(padding))
            else:
                values = values @ weight.T if kind == "dense" else values * weight.reshape(-1, *[1] * (values.ndim - 2))
            values = torch.round((values + bias.reshape(-1, *[1] * (values.ndim - 2))) / divisor)
            values = values if divisor == 1 else values.clamp(-(2.0**15), 2.0**15)
    return values.flatten(1).numpy()


def space(stored):
    """The function from records to coordinates, whole numbers from -127 to 127, that an npz file describes."""
    with np.load(io.BytesIO(stored.numpy().tobytes()), allow_pickle=False) as archive:
        state = {name: archive[name] for name in archive.files}
    kind, encoder, coordinates = str(state["kind"]), part(state, "encoder"), part(state, "coordinates")

    def transform(x):
        product = encode(kind, encoder, x) @ coordinates["matrix"] - coordinates["offset"]
        steps = np.clip(np.rint(product / coordinates["reduction"]), -(2.0**20), 2.0**20)
        if coordinates["cosine"]:
            norm = np.sqrt((steps**2).sum(axis=1, keepdims=True))
            numbers = 127 * steps / np.where(norm > 0, norm, 1)
        else:
            numbers = steps * coordinates["scale"]
        return np.clip(np.rint(numbers), -127, 127)

    return transform


def linear(stored):
    transform, weights, constant = space(stored["representation"]), stored["weights"], float(stored["constant"][0])

    def probabilities(x):
        """Probabilities (n, classes) of encoded float32 records x."""
        logits = torch.from_numpy(transform(x)) @ weights[:-1] + constant * weights[-1]
        return logits.softmax(1).numpy()

    return probabilities


def layers(stored):
    transform = space(stored["representation"]) if len(stored["representation"]) else None

    def layer(values, name, apply, **options):
        return apply(values, stored[f"{name}.weight"], stored[f"{name}.bias"], **options)

    def maps(values, name, **options):
        return functional.max_pool2d(torch.tanh(layer(values, name, functional.conv2d, **options)), 2, stride=1)

    @torch.inference_mode()
    def probabilities(x):
        """Probabilities (n, classes) of encoded float32 records x."""
        values = torch.from_numpy((x if transform is None else transform(x)).astype(np.float32))
        values = values * float(stored["scale"])
        if "first.weight" in stored and stored["first.weight"].ndim == 4:
            images = values[:, None] if values.ndim == 3 else values.permute(0, 3, 1, 2)
            values = maps(maps(images, "first", stride=2, padding=2), "second", stride=2).flatten(1)
            values = torch.tanh(layer(values, "hidden", functional.linear))
        else:
            values = values.flatten(1)
            for name in ("first", "second"):
                if f"{name}.weight" in stored:
                    values = torch.tanh(layer(values, name, functional.linear))
        return layer(values, "output", functional.linear).double().softmax(1).numpy()

    return probabilities


def load(path):
    stored = load_file(path)
    return linear(stored) if "weights" in stored else layers(stored)
