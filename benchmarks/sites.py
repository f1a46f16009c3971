"""Sums across sites, simulated in one process with `learning.sites`: results of joint runs, and cost of a question.

    IPATE_DATA_DIR=… nice -n 19 .venv/bin/python -m benchmarks.sites [speed steps neighbours] [--quick]

MNIST, 60,000 people at five sites, everyone at ε = 1, compared with the same as one study. Prints tables and stores the
numbers in benchmarks/results/sites.json. Stored rows are not measured again. `--quick` stores nothing.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import Cell, Row, parts_measure
from common.noise import SystemNoise
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, Question, Records
from learning.sites.documents import sign
from learning.sites.lattice import IncludedNoise
from learning.sites.protocol import answer, endorse, question_for, total, total_spread
from tests.learning.sites.alliances import HUB, Joint

RESULTS = Path(__file__).resolve().parent / "results" / "sites.json"
SITES, EPSILON = 5, 1.0
MODES = ("one study", "together", "separate")


def speed(quick: bool) -> Iterator[Cell]:
    """Measure one question: bytes sent by a site, processor milliseconds of a site and of the hub (medians of five)."""
    for numbers in (7_850,) if quick else (7_850, 100_000):
        for count in (3, 5, 20):
            for mode in MODES[1:]:
                about = {"numbers": numbers, "sites": count, "mode": mode}
                yield about, lambda about=about: _speed(**about)


def _speed(numbers: int, sites: int, mode: str) -> Row:
    joint = Joint(sites, mode=mode)  # type: ignore[arg-type]
    took: dict[str, list[float]] = {"endorse": [], "answer": [], "total": []}

    def lap(name: str, work: Callable[..., Any], *given: Any) -> Any:
        clock = time.process_time()
        done = work(*given)
        took[name].append(1000 * (time.process_time() - clock))
        return done

    for number in range(1, 6):
        question = joint.question(number, spread=1e6)
        signed, sums, noise = sign(question, HUB), np.arange(numbers), SystemNoise()
        endorsements = [
            lap("endorse", endorse, site, joint.roster, signed, question, joint.ledgers[site.name])
            for site in joint.sites
        ]
        answers = [
            lap("answer", answer, site, joint.roster, question, endorsements, sums, noise, joint.ledgers[site.name])
            for site in joint.sites
        ]
        lap("total", total, joint.roster, question, answers)
    documents = len(answers[0].answer.document.content()) + 64
    return {"bytes": len(answers[0].vector) + documents} | {
        f"{name}_ms": float(np.median(each)) for name, each in took.items()
    }


class Hospitals:
    """People and records divided by site, and the joint run of all sites."""

    def __init__(self, mode: str, caps: np.ndarray, records: Records) -> None:
        count = 1 if mode == "one study" else SITES
        self.joint = None if mode == "one study" else Joint(SITES, mode=mode)  # type: ignore[arg-type]
        self.spent = np.zeros(len(caps))
        self.caps, self.number, self.seconds = caps, 0, 0.0
        self._masks = [np.arange(len(caps)) % count == place for place in range(count)]
        self._records = []
        for mask in self._masks:
            mine = mask[records.owner]
            place = (np.cumsum(mask) - 1)[records.owner[mine]]
            self._records.append(Records(records.x[mine], records.classes[mine], place))

    def release(self, question: Question, part: slice, state: Any) -> tuple[PartRelease, float]:
        """Return the release of a part, and the standard deviation of its noise in units of the sums."""
        draws, answers, everybody = Draws(SystemNoise()), [], np.arange(len(self.caps))
        people = People(everybody, self.caps, self.caps, self.spent)
        for mask, records in zip(self._masks, self._records, strict=True):
            made = question.answer(
                part, state, people.of(mask), lambda records=records: records, alone=False, draws=draws
            )
            self.spent[mask] += made["charge"]
            answers.append(made)
        assert question.spread is not None
        if self.joint is None:
            return question.release(part, state, answers, draws.noise), question.spread
        clock = time.process_time()
        self.number += 1
        names = self.joint.run.document.participants
        document = question_for(
            self.joint.roster, question, number=self.number, part=part, state="", participants=names
        )
        sums: Arrays = {
            "sums": self.joint.total(document, [each["sums"] for each in answers], lambda _place: SystemNoise())
        }
        self.seconds += time.process_time() - clock
        release = question.release(part, state, [sums], IncludedNoise(question.spread))
        return release, total_spread(self.joint.roster, document)


def _cells(measure: Callable[[int, str], Row], quick: bool) -> Iterator[Cell]:
    for split in range(1 if quick else 3):
        for mode in MODES:
            yield {"split": split, "mode": mode}, lambda split=split, mode=mode: measure(split, mode)


def neighbours(quick: bool) -> Iterator[Cell]:
    """Measure one round of *neighbours* on 9,000 public points: correct labels, and the student `consistency`."""
    return _cells(_neighbours, quick)


def _neighbours(split: int, mode: str) -> Row:
    from benchmarks.neighbours.study import DELTAS, caps_draw, levels_of
    from benchmarks.students.parts import judged, teacher
    from benchmarks.students.study import data_split
    from learning.mechanisms.neighbours.released_counts import VotesQuestion
    from learning.mechanisms.neighbours.rounds import plan_rounds
    from learning.mechanisms.neighbours.votes import radii
    from learning.outcomes import Classes
    from learning.representations import default_representation
    from learning.students.releases import counted
    from learning.students.smoothing import neighbourhoods

    data = data_split("mnist", split)
    caps = caps_draw(EPSILON, data.holders, DELTAS["mnist"])
    planned = plan_rounds(data.public, levels_of(caps, 1.0), share=1.0, n_classes=10, rounds=1).rounds[0]
    reach = radii(data.public[planned.queries], data.public, planned.radius_share)
    question = VotesQuestion(
        rows=planned.queries,
        queries=data.public[planned.queries],
        radii=reach,
        voters=np.zeros(len(planned.queries)),
        predicted=None,
        fitted=default_representation(data.x.shape[1:]).fit(data.x),
        sigma=planned.sigma,
        radius_share=planned.radius_share,
        kernel="uniform",
        outcome=Classes(tuple("0123456789")),
        index=0,
        promises=1,
    )
    hospitals = Hospitals(mode, caps, Records(data.private, data.private_truth, data.holder))
    release, spread = hospitals.release(question, slice(0, question.size), None)
    near = neighbourhoods(planned.queries, data.public, reach)
    releases = counted(planned.queries, np.array(release.counts), spread, reach=near)
    model = teacher("consistency", data)(data.x, releases)
    return {
        "sigma": spread,
        "largest_counts_right": float((np.array(release.labels) == data.truth[planned.queries]).mean()),
        "spent": float((hospitals.spent / caps).mean()),
        "protocol_seconds": hospitals.seconds,
        **judged(data, model),
    }


def steps(quick: bool) -> Iterator[Cell]:
    """Measure individual steps with public curvature, one question each: the linear model on wavelets."""
    return _cells(_steps, quick)


def _steps(split: int, mode: str) -> Row:
    from benchmarks.sgd.study import caps_draw, case_load
    from learning.mechanisms.protocol import PlannedLevel
    from learning.mechanisms.steps.descent import Descent, StepsQuestion
    from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of

    case = case_load("mnist", split, Steps())
    caps = caps_draw(EPSILON, len(case.records))
    levels = [PlannedLevel("all", float(caps[0]), len(caps))]
    case = case.placed(Steps(), strength_of(levels, share=1.0, steps=Steps()))
    plan = plan_steps(levels, dimensions=case.public.shape[1], n_classes=10, share=1.0, steps=Steps())
    state = Descent.begin(plan, case.public, 10)
    question = StepsQuestion(plan, case.fitted, state, 0, np.unique(caps))
    records = Records(case.records.x, case.records.y, case.records.holder)
    hospitals, clock = Hospitals(mode, caps, records), time.perf_counter()
    while not state.finished:
        release, _ = hospitals.release(question, slice(state.step, state.step + 1), state)
        state = question.state(release.arrays)
    seconds = time.perf_counter() - clock
    right = (state.model(case.fitted).predict(case.test_points) == case.truth).mean()
    return {
        "questions": plan.steps,
        "numbers": state.parameters.size,
        "accuracy": float(right),
        "spent": float((hospitals.spent / caps).mean()),
        "protocol_seconds": hospitals.seconds,
        "seconds": seconds,
    }


def main() -> None:
    parts_measure(__doc__, RESULTS, {part.__name__: part for part in (speed, steps, neighbours)})


if __name__ == "__main__":
    main()
