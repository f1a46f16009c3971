"""Contributions of holders to a step: the gradient of all their records, clipped, in whole multiples of a public unit.

A contribution is a function of the public weights and of the holder's own records, bit for bit. A block has a fixed
number of slots, whatever it holds; a holder's records always go to the same slot, one after the other, and what stands
in the other slots never enters the arithmetic of this one. When a holder goes, those behind in the same slot move to an
earlier block, not to another slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from training.methods.sgd.record_gradients import RecordGradients
from training.methods.sgd.records import OwnedRecords

SLOTS = 64
"""Records of a block; on a CPU the fastest of 16 to 512."""

_MARGIN = 1 - 2.0**-20
Integers = NDArray[np.int64]


class Gradients:
    """Contributions of holders to the steps of one network.

    Args:
        network: of dense and convolutional layers, the last called `output`; left as it is.
        shape: of a record as the network takes it.
        scale: what records are multiplied by first, public; for coordinates, one over a typical length.
        records: most records of a holder in one step; who has more contributes others in the next.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...], *, scale: float = 1.0, records: int = 16) -> None:
        self._of_each = RecordGradients(network)
        self._shape, self._scale, self._records = shape, scale, records
        self._classes = len(network.get_parameter("output.bias"))

    def sums(
        self, weights: ArrayLike, holders: OwnedRecords, chosen: ArrayLike, norms: ArrayLike, *, unit: float, step: int
    ) -> Integers:
        """The sum of the clipped contributions of those chosen, in units. Sums of shards add up exactly.

        A holder's contribution is the mean of the gradients of their records, scaled to at most their norm, and every
        number rounded towards 0 to a multiple of the unit: rounding cannot make it longer. The norm is computed in
        float64, the factor and the products are rounded in float32 by at most 2^-24 each, and 2^-20 of the norm is left
        free for that. A gradient that is not finite counts as 0.

        Args:
            weights: `(d,)` public, in the order of the network's parameters.
            holders: of this shard.
            chosen: positions of the holders of this step, in any order.
            norms: `(H,)` largest norm of each holder's contribution, at most `FINENESS` units.
            unit: public.
            step: number of the step, which decides the records of those with more than a step takes.

        Returns:
            `(d,)`; secret.
        """
        self._of_each.load(weights)
        total = torch.zeros(np.shape(weights), dtype=torch.int64)
        unfinished = torch.zeros(SLOTS, len(total))
        limits = np.asarray(norms, np.float64)
        for block in _blocks(holders, np.asarray(chosen, np.int64), self._records, step):
            x, y, counts = self._records_of(holders, block.record)
            means = self._of_each(x, y)
            means.mul_(torch.from_numpy(1 / block.count).float()[:, None])
            means[torch.from_numpy(~counts)] = 0
            going_on = torch.from_numpy(block.going_on)
            means[going_on] += unfinished[going_on]
            allowed = torch.from_numpy(np.where(block.last, limits[block.holder], 0.0))
            total += _whole_contributions(means, allowed, unit).sum(0, dtype=torch.int32)  # 2^20 · 64 at most
            unfinished = means
        return total.numpy()

    def _records_of(
        self, holders: OwnedRecords, record: Integers
    ) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.bool_]]:
        """Records, labels, and which of them count; where one does not, zeros."""
        counts = record >= 0
        x, y = np.zeros((SLOTS, *self._shape), np.float32), np.full(SLOTS, -1, np.int64)
        x[counts], y[counts] = holders.x[record[counts]], holders.y[record[counts]]
        x *= np.float32(self._scale)
        counts = (y >= 0) & (y < self._classes) & np.isfinite(x.reshape(SLOTS, -1)).all(axis=1)
        x[~counts], y[~counts] = 0, 0
        return torch.from_numpy(x), torch.from_numpy(y), counts


def _whole_contributions(gradients: torch.Tensor, norms: torch.Tensor, unit: float) -> torch.Tensor:
    lengths = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
    factors = torch.clamp(norms * _MARGIN / lengths, max=1.0) / unit
    contributions = gradients * torch.where(lengths > 0, factors, 0.0).float()[:, None]
    contributions[~torch.isfinite(lengths)] = 0
    return contributions.to(torch.int32)  # towards 0


@dataclass(frozen=True, eq=False)
class _Block:
    """For each slot: the record, -1 for none; how many its holder has in this step; whether earlier and later ones
    stand in other blocks."""

    record: Integers
    holder: Integers
    count: NDArray[np.float64]
    going_on: NDArray[np.bool_]
    last: NDArray[np.bool_]


def _blocks(holders: OwnedRecords, chosen: Integers, most: int, step: int) -> Iterator[_Block]:
    """The records of this step, each in its holder's slot, behind those of holders with a smaller identity."""
    chosen = chosen[holders.first[chosen + 1] > holders.first[chosen]]
    slots = holders.identity[chosen] % SLOTS
    order = np.lexsort((holders.identity[chosen], slots))
    chosen, slots = chosen[order], slots[order]
    owned = holders.first[chosen + 1] - holders.first[chosen]
    counts = np.minimum(owned, most)
    row = np.repeat(np.arange(len(chosen)), counts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    record = holders.first[chosen[row]] + (step * counts[row] + place) % owned[row]
    slot = slots[row]
    height = np.arange(len(row)) - np.searchsorted(slot, slot)  # how many stand before it in its slot
    for level in range(int(height.max(initial=-1)) + 1):
        here = np.flatnonzero(height == level)
        filled, of = slot[here], row[here]
        block = _Block(
            np.full(SLOTS, -1), np.zeros(SLOTS, np.int64), np.ones(SLOTS), np.zeros(SLOTS, bool), np.zeros(SLOTS, bool)
        )
        block.record[filled], block.holder[filled], block.count[filled] = record[here], chosen[of], counts[of]
        block.going_on[filled], block.last[filled] = place[here] > 0, place[here] == counts[of] - 1
        yield block
