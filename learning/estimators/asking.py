"""Rows with an account each, which are asked the questions of a method one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import available_delta, promise_caps
from common.noise import JOINT_NORMAL_DISTANCE, Noise, SimulationNoise, SystemNoise
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.protocol import Draws, PartRelease, People, PlannedLevel, Question

Floats = NDArray[np.float64]

GRID = 2.0 ** (np.arange(-12, 13) / 2)
"""Values of ε that plans distinguish, from 1/64 to 64. A row is planned with the largest value up to its own ε."""
COUNT_NOISE = 20.0
"""Standard deviation of the noise of each head count, if head counts are not public."""
_DRAWS = 10**18
_CLEAR = 2.0


class Asked:
    """Rows of people who are asked, each with an account whose cap is determined by its ε.

    Args:
        epsilons: (n,) ε of each row, or one for all.
        count: Number of rows n.
        delta: δ of all promises.
        seed: Seed of the noise, for experiments whose results stay secret; None for the operating system's generator.

    Raises:
        ValueError: An ε or δ that cannot be promised, or a wrong number of ε values.
    """

    def __init__(self, epsilons: ArrayLike, count: int, delta: float, seed: int | None) -> None:
        given = np.asarray(epsilons, np.float64)
        if given.shape not in ((), (count,)):
            raise ValueError(f"epsilons has the shape {given.shape}; give one for each of the {count} rows.")
        self.epsilons, self.delta = np.broadcast_to(given, (count,)), delta
        if not ((self.epsilons >= GRID[0]) & np.isfinite(self.epsilons)).all():
            raise ValueError(f"An ε is below {GRID[0]:g} or not finite: leave out rows that may not be used.")
        self.caps = promise_caps(self.epsilons, self._left)
        self.spent = np.zeros(count)
        self._noise: Noise = SystemNoise() if seed is None else SimulationNoise(seed)

    def levels(self, head_counts: Mapping[float, float] | None) -> list[PlannedLevel]:
        """Return numbers of rows by ε for planning: public ones, or noisy ones that are charged.

        Args:
            head_counts: Public numbers by ε; None to count with noise.
        """
        if head_counts is not None:
            known = sorted((float(epsilon), float(number)) for epsilon, number in head_counts.items() if number > 0)
            if not known:
                raise ValueError("The head counts name no row: give a number above 0 for an ε.")
            caps = promise_caps([epsilon for epsilon, _number in known], self._left)
            return [PlannedLevel(f"{e:g}", float(cap), n) for (e, n), cap in zip(known, caps, strict=True)]
        question = HeadCountQuestion(len(GRID), 1, COUNT_NOISE)
        place = np.searchsorted(GRID, self.epsilons, side="right") - 1
        (released,) = self.ask(question, place == np.arange(len(GRID))[:, None])
        counts = released.arrays["counts"]
        kept = np.flatnonzero(counts > _CLEAR * COUNT_NOISE)
        kept = kept if len(kept) else np.array([counts.argmax()])
        caps = promise_caps(GRID[kept], self._left)
        numbers = np.maximum(counts[kept], 1).tolist()
        return [
            PlannedLevel(f"{epsilon:g}", float(cap), float(number))
            for epsilon, cap, number in zip(GRID[kept], caps, numbers, strict=True)
        ]

    def share(self, levels: list[PlannedLevel]) -> float:
        """Return the share of every cap that is left after the head counts, so that rows with small caps can pay, too.

        Levels whose caps would be used up by half for the head counts are ignored: they take part as far as they can.
        """
        able = [level.cap for level in levels if level.cap > 2 * self._counted]
        return 1.0 - self._counted / min(able) if able else 0.5

    def ask(self, question: Question, records: Any, *, most: int = 1_000_000) -> Iterator[PartRelease]:
        """Yield the release of each part of a question, after its cost has been charged.

        Args:
            question: Question of a mechanism.
            records: Records in the form that the question takes.
            most: Largest number of queries or steps of a part.
        """
        holders, released, start, batch = np.arange(len(self.caps)), None, 0, 0
        while start < question.size:
            people = People(holders, self.caps, self.caps, self.spent)
            part, state = question.part(batch, start, most), question.state(released)
            answer = question.answer(part, state, people, lambda: records, alone=True, draws=Draws(self._noise))
            release = question.release(part, state, [answer], self._noise)
            self.spent = self.spent + answer["charge"]
            if isinstance(question, HeadCountQuestion):
                self._counted = question.charge
            yield release
            released, start, batch = release.arrays, start + release.size, batch + 1

    _counted = 0.0

    def _left(self, epsilon: float) -> float:
        return available_delta(self.delta, epsilon, draws=_DRAWS, distance=JOINT_NORMAL_DISTANCE)
