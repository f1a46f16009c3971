"""States of a training by AdamW between two steps, as bytes (safetensors, which runs no code when it is read)."""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def state_save(step: int, layers: nn.Module, optimiser: torch.optim.AdamW, generator: torch.Generator) -> bytes:
    """Everything that the steps after ``step`` depend on: weights, moments, the state of the random generator."""
    tensors = {f"layers.{name}": each for name, each in layers.state_dict().items()}
    for place, weights in enumerate(layers.parameters()):
        tensors |= {f"{name}.{place}": optimiser.state[weights][name] for name in _MOMENTS}
    tensors |= {"steps": torch.tensor(step), "generator": generator.get_state()}
    return save({name: each.detach().cpu().contiguous() for name, each in tensors.items()})


@torch.no_grad()
def state_load(state: bytes | None, layers: nn.Module, optimiser: torch.optim.AdamW, generator: torch.Generator) -> int:
    """Put a training back to where it was `state_save`.

    Returns:
        The number of steps that were taken. 0, and nothing is changed, where no state can be read or it does not fit.
    """
    try:
        tensors = load(state or b"")
        parts = {name.removeprefix("layers."): each for name, each in tensors.items() if name.startswith("layers.")}
        moments = [
            {name: tensors[f"{name}.{place}"] for name in _MOMENTS} for place, _ in enumerate(layers.parameters())
        ]
        step, drawn = int(tensors["steps"]), tensors["generator"]
    except (SafetensorError, KeyError):
        return 0
    if {name: each.shape for name, each in parts.items()} != {
        name: each.shape for name, each in layers.state_dict().items()
    }:
        return 0  # of another network
    layers.load_state_dict(parts)
    for weights, moment in zip(layers.parameters(), moments, strict=True):
        # in the memory format of the weights, which the fused optimiser takes for granted
        moved = {name: torch.empty_like(weights).copy_(moment[name]) for name in _MOMENTS[1:]}
        optimiser.state[weights] = {"step": moment["step"].to(weights.device), **moved}
    generator.set_state(drawn)
    return step
