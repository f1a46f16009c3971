"""Convolutions and sums over squares of whole numbers: with PyTorch where it is installed, otherwise with NumPy.

All sums are exact (`learning.exact_arithmetic`), so both give the same bits. Machines that only serve pages need no
PyTorch; on workers it is up to twice as fast.
"""

from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from learning.pytorch import has_pytorch

Number = TypeVar("Number", bound=np.floating)

_NUMBERS = 2**22
"""Most numbers of patches that NumPy lays out at a time."""


@cache
def _torch() -> Any:
    """Return PyTorch, or None where it is not installed; loaded on demand, because it takes a second."""
    return import_module("torch") if has_pytorch() else None


def convolve(maps: NDArray[Number], filters: NDArray[Number], *, stride: int = 1, padding: int = 0) -> NDArray[Number]:
    """Return `(n, filters, height, width)` products of filters with the patches of maps.

    Args:
        maps: `(n, channels, height, width)`.
        filters: `(filters, channels, *sides)`, of the same type.
        stride: Between patches, in both directions.
        padding: Rows and columns of 0 on each side.

    >>> convolve(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), stride=2, padding=1)
    array([[[[1., 2.],
             [2., 4.]]]])
    """
    if torch := _torch():
        tensors = torch.from_numpy(maps), torch.from_numpy(filters)
        return torch.nn.functional.conv2d(*tensors, stride=stride, padding=padding).numpy()
    padded = np.pad(maps, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    patches = _windows(padded, filters.shape[2:], stride)
    flat = filters.reshape(len(filters), -1).T
    result = np.empty((len(maps), len(filters), *patches.shape[2:4]), maps.dtype)
    together = max(1, _NUMBERS // (flat.shape[0] * patches.shape[2] * patches.shape[3]))
    for start in range(0, len(maps), together):
        part = patches[start : start + together].transpose(0, 2, 3, 1, 4, 5)
        product = part.reshape(-1, len(flat)) @ flat
        result[start : start + together] = product.reshape(*part.shape[:3], -1).transpose(0, 3, 1, 2)
    return result


def square_sums(
    maps: NDArray[Number], side: int | tuple[int, int], whole: bool = True, stride: int | None = None
) -> NDArray[Number]:
    """Return sums over squares of `side`; the rest at the right and lower edge is a smaller part, or dropped.

    >>> square_sums(np.arange(9.0).reshape(1, 1, 3, 3), 2)
    array([[[[ 8.,  7.],
             [13.,  8.]]]])
    """
    if torch := _torch():
        pooled = torch.nn.functional.avg_pool2d(
            torch.from_numpy(maps), side, stride, ceil_mode=whole, divisor_override=1
        )
        return pooled.numpy()
    sides = (side, side) if isinstance(side, int) else side
    if whole:
        missing = [(0, -length % each) for length, each in zip(maps.shape[2:], sides, strict=True)]
        maps = np.pad(maps, ((0, 0), (0, 0), *missing))
    return _windows(maps, sides, stride or sides).sum(axis=(4, 5))


def max_pool(maps: NDArray[Number], side: int) -> NDArray[Number]:
    """Return the largest number in each square of `side`; the rest at the right and lower edge is dropped."""
    if torch := _torch():
        return torch.nn.functional.max_pool2d(torch.from_numpy(maps), side).numpy()
    return _windows(maps, (side, side), side).max(axis=(4, 5))


def _windows(maps: NDArray[Number], sides: tuple[int, ...], stride: int | tuple[int, int]) -> NDArray[Number]:
    """Return `(n, channels, rows, columns, *sides)` windows of maps."""
    down, right = (stride, stride) if isinstance(stride, int) else stride
    return sliding_window_view(maps, sides, axis=(2, 3))[:, :, ::down, ::right]
