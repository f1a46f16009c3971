"""Contributions of holders to a step: the gradient of all their records, clipped, in multiples of a public unit.

A contribution depends only on the public weights and the holder's own records, bit for bit. All sums are sums of
integers, which are exact in any order; see :mod:`learning.mechanisms.sampled_steps.whole_gradients`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from learning.formats.rows import as_numbers
from learning.mechanisms.sampled_steps.whole_gradients import LayerGradients, RecordGradients
from learning.mechanisms.steps.linear import OwnedRecords
from learning.outcomes import CROSS_ENTROPY, Loss
from learning.representations.coordinates import LARGEST

# Each call to PyTorch takes as long as thousands of products, so blocks are as large as memory allows.
_RECORDS_AT_A_TIME = 1024
_NUMBERS_AT_A_TIME = 2**22
# norm to which a holder's longest gradient is scaled, times the number of records; squares stay below 2⁵³
_SUM_STEPS = 2.0**26
_ADDED_AT_A_TIME = 16
_MARGIN = 1 - 2.0**-20
Integers = NDArray[np.int64]


class Gradients:
    """Contributions of holders to the steps of one network.

    Args:
        network: One of `networks.NETWORKS`; left unchanged.
        shape: Shape of a record as input of the network.
        scale: Public factor of the records; for coordinates (int8), 1 divided by a typical length. Other records, such
            as pixels of images, are clipped to [-1, 1] and rounded to multiples of 1/127.
        records: Largest number of a holder's records in one step; holders who own more records contribute different
            ones in each step.
        loss: Loss of a record's scores and target.

    Raises:
        ValueError: The network or the images are not supported, see `RecordGradients`.
    """

    def __init__(
        self,
        network: nn.Module,
        shape: tuple[int, ...],
        *,
        scale: float = 1.0,
        records: int = 16,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        self._network, self._shape, self._scale, self._records = network, shape, scale, records
        self._of_each = RecordGradients(network, shape, loss)

    @torch.inference_mode()
    def sums(
        self, weights: ArrayLike, holders: OwnedRecords, chosen: ArrayLike, norms: ArrayLike, *, unit: float, step: int
    ) -> Integers:
        """Return the sum of the chosen holders' clipped contributions, in units. The sums of shards add up exactly.

        A holder's contribution is the mean of the gradients of their records, scaled to at most the holder's norm, with
        every number rounded towards 0 to a multiple of the unit, so that rounding cannot lengthen it. Norms are
        computed in float64 from exact squares. In float32, the factor and the products have a relative rounding error
        of 2^-24 each, for which 2^-20 of the norm is reserved.

        Args:
            weights: `(d,)` public weights, in the order of the network's parameters.
            chosen: Positions of the holders of this step, in any order.
            norms: `(H,)` largest norm of each holder's contribution, at most `FINENESS` units.
            unit: Public unit of the contributions.
            step: Number of the step, which selects records of holders with more records than fit into a step.

        Returns:
            Secret sum `(d,)`.

        Raises:
            ValueError: The weights are not finite.
        """
        self._of_each.load(weights, unit=self._scale if _are_whole(holders) else self._scale / LARGEST)
        limits, layers = np.asarray(norms, np.float64), self._of_each.layers
        totals = [torch.zeros(shape, dtype=torch.float64) for layer in layers for shape in layer.shapes]
        for stack in self._stacks(holders, np.asarray(chosen, np.int64), step):
            x, y = self._records_of(holders, stack.record.ravel())
            allowed = torch.from_numpy(limits[stack.holder] * (_MARGIN / unit))
            contributions = _singles if stack.record.shape[1] == 1 else _means
            for total, part in zip(totals, contributions(self._of_each(x, y), allowed, unit), strict=True):
                total += part
        flat = []
        for layer, products, slopes in zip(layers, totals[::2], totals[1::2], strict=True):
            flat += [layer.in_order(products), slopes]
        return torch.cat(flat).to(torch.int64).numpy()

    def _stacks(self, holders: OwnedRecords, chosen: Integers, step: int) -> Iterator[_Stack]:
        """Yield stacks that together contain all chosen holders with records."""
        owned = holders.first[chosen + 1] - holders.first[chosen]
        for count in np.unique(owned[owned > 0]).tolist():
            mine, each = chosen[owned == count], min(count, self._records)
            places = (step * each + np.arange(each)) % count
            numbers = self._of_each.numbers if each == 1 else max(self._of_each.numbers, self._of_each.size)
            most = min(_RECORDS_AT_A_TIME, _NUMBERS_AT_A_TIME // numbers) // each
            for part in np.array_split(mine, -(-len(mine) // max(1, most))):
                yield _Stack(part, holders.first[part][:, None] + places)

    def _records_of(self, holders: OwnedRecords, record: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        """Return integer records and their labels; a record with a non-finite value has no label."""
        values = np.asarray(as_numbers(holders.x[record]), np.float32).reshape(-1, *self._shape)
        finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        values[~finite] = 0
        if not _are_whole(holders):
            values = np.rint(np.clip(values, -1, 1) * np.float32(LARGEST))
        return torch.from_numpy(values), torch.from_numpy(np.where(finite, holders.y[record], -1))


def _are_whole(holders: OwnedRecords) -> bool:
    """Return whether the records are integer coordinates."""
    return holders.x.dtype == np.int8


Sums = list[torch.Tensor]
"""For each layer, weights `(outputs, inputs)` and biases `(outputs,)`, in integer units stored as float64."""


def _singles(layers: list[LayerGradients], allowed: torch.Tensor, unit: float) -> Sums:
    """Add up gradients of holders with one record each."""
    lengths = torch.sqrt(_added([layer.squared_norms for layer in layers])) / unit
    factors = torch.where(lengths > allowed, allowed / lengths, 1.0) / unit
    sums: Sums = []
    for layer in layers:
        biases = layer.scale * factors
        weights = biases * layer.unit
        if layer.slopes.shape[1] == 1:  # integer slopes times integer inputs
            slopes = (layer.slopes[:, 0] * weights.float()[:, None]).trunc_()
            products = slopes.double().T @ layer.inputs[:, 0].double()
        else:
            products = _whole_sum(layer.products, weights)
        sums += [products, _whole_sum(layer.totals, biases)]
    return sums


def _means(layers: list[LayerGradients], allowed: torch.Tensor, unit: float) -> Sums:
    """Add up the mean gradients of holders with the same number of records.

    Gradients are rounded in units that depend on the holder.
    """
    holders = len(allowed)
    each = len(layers[0].scale) // holders
    lengths = torch.sqrt(_added([layer.squared_norms for layer in layers]))
    longest = lengths.view(holders, each).amax(1)
    steps = torch.where(longest > 0, _SUM_STEPS / each / longest, 0.0).repeat_interleave(each)
    means, squares = [], torch.zeros(holders, dtype=torch.float64)
    for layer in layers:
        for gradients, scale in ((layer.products, layer.scale * layer.unit), (layer.totals, layer.scale)):
            shaped = (scale * steps).view(-1, *[1] * (gradients.ndim - 1))
            sums = (gradients.double() * shaped).round_().view(holders, each, *gradients.shape[1:]).sum(1)
            means.append(sums)
            squares += sums.flatten(1).square().sum(1)
    stepped = longest / (_SUM_STEPS * unit)
    lengths = torch.sqrt(squares) * stepped
    factors = torch.where(lengths > allowed, allowed / lengths, 1.0) * stepped
    return [_whole_sum(mean, factors) for mean in means]


def _added(parts: list[torch.Tensor]) -> torch.Tensor:
    """Add parts one after another, always in the same order, so that every bit of the result is reproducible."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _whole_sum(gradients: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return Σ of gradients times factors, each rounded towards 0.

    In float32, sums of 2^4 numbers up to 2^20 are exact.
    """
    shaped = factors.to(gradients.dtype).view(-1, *[1] * (gradients.ndim - 1))
    total = torch.zeros(gradients.shape[1:], dtype=torch.float64)
    scaled = torch.empty((_ADDED_AT_A_TIME, *gradients.shape[1:]), dtype=gradients.dtype)
    for some, their in zip(gradients.split(_ADDED_AT_A_TIME), shaped.split(_ADDED_AT_A_TIME), strict=True):
        total += torch.mul(some, their, out=scaled[: len(some)]).trunc_().sum(0)
    return total


@dataclass(frozen=True, eq=False)
class _Stack:
    """Holders with the same number of records in this step: positions of holders `(m,)` and of records `(m, n)`."""

    holder: Integers
    record: Integers
