"""Time and memory for a table of counts for very many people: added up in shards, charged, and released with noise."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from accounting.caps import caps_of
from common.noise import SystemNoise
from learning.formats import TabularSchema
from learning.formats.columns import NumericColumn
from learning.mechanisms.counts.table_plan import Counts, columns_of, number_of_cells, plan_counts
from learning.mechanisms.counts.tables import CountsQuestion, CountTable
from learning.mechanisms.protocol import Draws, People, PlannedLevel, Records

SHARD = 200_000
WHOLE = slice(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holders", type=int, default=1_000_000)
    parser.add_argument("--bins", type=int, default=32, help="of each of two columns")
    options = parser.parse_args()
    schema = TabularSchema((NumericColumn("age", 0, 1), NumericColumn("income", 0, 1)), ("no", "yes"))
    rng, caps = np.random.default_rng(0), caps_of([1.0, 2.0, 3.0], 1e-6)
    level_of = rng.integers(0, 3, options.holders)
    x = rng.random((options.holders, 2), dtype=np.float32)
    columns = columns_of(schema, ["age", "income"], options.bins)
    levels = [PlannedLevel(str(place), float(cap), options.holders / 3) for place, cap in enumerate(caps)]
    plan = plan_counts(levels, cells=number_of_cells(columns), share=0.1, counts=Counts(column="age"))
    question, noise = CountsQuestion(plan, (columns,), tuple(caps.tolist())), SystemNoise()
    clock, processor, answers = time.monotonic(), time.process_time(), []
    for start in range(0, options.holders, SHARD):
        part = slice(start, min(start + SHARD, options.holders))
        number = part.stop - start
        mine = caps[level_of[part]]
        people = People(np.arange(number), mine, 0.1 * mine, np.zeros(number))
        records = Records(x[part], np.zeros(number, np.int64), np.arange(number))
        answers.append(question.answer(WHOLE, None, people, lambda: records, alone=False, draws=Draws(noise)))  # noqa: B023
    table = CountTable.released(question, question.release(WHOLE, None, answers, noise).arrays["sums"], levels)
    distinct = sum(cell.is_distinct for cell in table)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"{options.holders} people, {len(table)} cells ({distinct} told from empty): {time.monotonic() - clock:.1f} s, "
        f"{time.process_time() - processor:.1f} s of processor time, {memory:.0f} MB"
    )


if __name__ == "__main__":
    main()
