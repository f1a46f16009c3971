"""Time to ask holders in one process and in two. The holders are divided into shards, as they are for workers."""

from __future__ import annotations

import time
from dataclasses import replace
from multiprocessing import get_context
from threading import Barrier
from typing import Any

import numpy as np

from accounting.privacy import IndividualAccounts
from benchmarks.neighbours.study import DELTAS, Data, ask, caps_draw, data_load, levels_of
from learning.mechanisms.neighbours.rounds import PlannedRound, plan_rounds

SHARDS = 8
_loaded: list[tuple[Data, PlannedRound]] = []


def workers(quick: bool) -> list[dict[str, Any]]:
    """Measure 8 shards of MNIST at ε = 1, asked by 1 and by 2 processes that have already loaded the data."""
    data = data_load("mnist").first(6_000 if quick else 60_000)
    caps = caps_draw(1.0, data.holders, DELTAS["mnist"])
    planned = plan_rounds(data.public, levels_of(caps, 1.0), share=1.0, n_classes=10, rounds=1).rounds[0]
    rows, context = [], get_context("spawn")
    for processes in (1, 2):
        ready = context.Barrier(processes + 1)
        with context.Pool(processes, _prepare, (data.holders, planned, ready)) as pool:
            ready.wait()
            clock = time.perf_counter()
            seconds = pool.map(_shard, range(SHARDS), chunksize=1)
            wall = time.perf_counter() - clock
        rows.append({"processes": processes, "wall_seconds": wall, "cpu_seconds": sum(seconds), "each": seconds})
    return rows


def _prepare(holders: int, planned: PlannedRound, ready: Barrier) -> None:
    _loaded.append((data_load("mnist").first(holders), planned))
    ready.wait()


def _shard(number: int) -> float:
    """Return the processor time for one shard."""
    data, planned = _loaded[0]
    mine = data.holder % SHARDS == number
    part = replace(
        data,
        private=data.private[mine],
        private_truth=data.private_truth[mine],
        holder=np.unique(data.holder[mine], return_inverse=True)[1],
    )
    caps = caps_draw(1.0, part.holders, DELTAS["mnist"])
    clock = time.process_time()
    ask(part, planned.queries, planned.radius_share, planned.sigma, [IndividualAccounts(caps)])
    return time.process_time() - clock
