"""Mechanisms across sites: totals equal those of one study bit for bit, with the right noise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from common.noise import SimulationNoise
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.pate import NO_VOTE
from learning.mechanisms.pate.ballots import Ballot, VoteState
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, Question
from learning.sites.documents import QuestionDocument, Refused
from learning.sites.lattice import IncludedNoise
from learning.sites.protocol import question_for, total_spread
from tests.draws import NoNoise
from tests.learning.mechanisms import test_counts, test_questions
from tests.learning.mechanisms import test_synthesis as synthesis
from tests.learning.mechanisms.pate import test_ballots as test_teachers
from tests.learning.sites.alliances import Joint, Mode

DRAWS = Draws(SimulationNoise(1), 1)


def put(joint: Joint, question: Question, part: slice, number: int = 1) -> QuestionDocument:
    names = joint.run.document.participants
    return question_for(joint.roster, question, number=number, part=part, state="", participants=names)


def over_sites(question: Question, part: slice, state: Any, answers: Sequence[Arrays]) -> PartRelease:
    """Return the release of a total that the protocol computed, without noise."""
    joint = Joint(len(answers))
    request = put(joint, question, part)
    assert question.spread is not None
    total = joint.total(request, [answer["sums"] for answer in answers], NoNoise)
    assert total.dtype == answers[0]["sums"].dtype
    return question.release(part, state, [{**answers[0], "sums": total}], IncludedNoise(question.spread))


def assert_same(one: PartRelease, other: PartRelease) -> None:
    assert (one.content, one.labels, one.counts) == (other.content, other.labels, other.counts)
    assert sorted(one.arrays) == sorted(other.arrays)
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype and array.tobytes() == other.arrays[name].tobytes()


QUESTIONS = {
    "votes": test_questions.votes,
    "votes for numbers": lambda: test_questions.votes(test_questions.NUMBERS),
    "kernel": lambda: replace(test_questions.votes(), kernel="epanechnikov"),
    "residual": lambda: replace(test_questions.votes(), predicted=np.arange(20) % 3),
    "steps": test_questions.steps,
    "head counts": test_questions.head_count,
    "counts": lambda: test_counts.counts_question("job", "sex"),
    "synthesis": lambda: synthesis.marginals_of(synthesis.records_of(24), synthesis.people_of(24)).question(1),
}


def people_and_records(question: Any, name: str) -> tuple[Any, Any]:
    """Return 24 people, and their records selected by a mask."""
    if name not in ("counts", "synthesis"):
        return test_questions.people(), lambda mask: test_questions.records(question, mask)
    both = synthesis.records_of(24, each=2)
    x = both.x
    if name == "counts":
        x = test_counts.records(*(("40", ("nurse", "smith")[n % 2], "fm"[n % 3 > 0], "no", n) for n in range(48))).x

    def of(mask: np.ndarray) -> Any:
        mine = mask[both.owner]
        place = np.searchsorted(np.flatnonzero(mask), both.owner[mine])
        return replace(both, x=x[mine], classes=both.classes[mine], owner=place)

    return synthesis.people_of(24), of


@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_total_of_sites_is_bit_for_bit_the_central_one(name: str, count: int) -> None:
    question = QUESTIONS[name]()
    who, records = people_and_records(question, name)
    part, state = question.part(0, 0, 4), question.state(None)
    masks = [np.arange(24) % count == place for place in range(count)]
    whole = np.ones(24, dtype=bool)
    central = question.answer(part, state, who, lambda: records(whole), alone=False, draws=DRAWS)
    how = {"alone": False, "draws": DRAWS}
    answers = [question.answer(part, state, who.of(mask), lambda mask=mask: records(mask), **how) for mask in masks]
    assert np.abs(central["sums"]).sum() > 0
    expected = question.release(part, state, [central], NoNoise(0))
    assert_same(over_sites(question, part, state, answers), expected)
    for answer, mask in zip(answers, masks, strict=True):
        assert np.array_equal(answer["charge"], central["charge"][mask]), "everybody is charged as in one study"


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize(
    "aggregator",
    [None, {"name": "noisy_counts", "sigma": 5.0}, test_teachers.RESIDUAL],
    ids=["gnmax", "noisy counts", "residual"],
)
def test_teachers_of_all_sites_vote_as_they_would_together(aggregator: Any, count: int) -> None:
    student = test_teachers.student if aggregator == test_teachers.RESIDUAL else None
    question = test_teachers.question(aggregator, student=student)
    groups = tuple(replace(group, teachers=count * group.teachers) for group in question.plan.groups)
    plan = replace(question.plan, groups=groups, teachers=count * question.plan.teachers)
    central, rng = replace(question, plan=plan), np.random.default_rng(4)
    said = rng.integers(0, test_teachers.CLASSES, (count, test_teachers.TEACHERS, test_teachers.POINTS))
    one = test_teachers.ballot(question)
    ballots = [replace(one, predictions=predictions) for predictions in said]
    group = np.array([np.flatnonzero([question.plan.members(g)[t] for g in range(len(question.plan.groups))])[0]
                      for t in range(test_teachers.TEACHERS)])  # fmt: skip
    order = np.argsort(np.tile(group, count), kind="stable")
    together = Ballot(said.reshape(-1, test_teachers.POINTS)[order], one.holder[:1], np.zeros(1, int), one.group[:1])
    who, state = test_teachers.people(), question.state(None)
    for _ in range(3):
        part = question.part(0, len(state.labels), 10)
        how = {"alone": True, "draws": DRAWS}
        answers = [question.answer(part, state, who, lambda ballot=ballot: ballot, **how) for ballot in ballots]
        whole = central.answer(part, state, who, lambda: together, **how)
        release = over_sites(question, part, state, answers)
        assert_same(release, central.release(part, state, [whole], NoNoise(0)))  # type: ignore[arg-type]
        state = VoteState.from_arrays(release.arrays)
    assert (state.guesses != NO_VOTE).any() == (student is not None), "some votes were residual"


def test_questions_with_more_than_one_noise_are_not_asked_across_sites() -> None:
    joint, part, votes = Joint(3), slice(0, 4), test_questions.votes()
    confident = {"name": "confident_gnmax", "sigma": 6.0, "sigma_threshold": 9.0, "threshold": 3.0}
    laplace = {"name": "lnmax", "gamma": 0.5}
    for question in (test_questions.sampled(), test_teachers.question(confident), test_teachers.question(laplace)):
        with pytest.raises(Refused, match="another method or aggregator"):
            put(joint, question, part)
    with pytest.raises(Refused, match="needs noise of 5"):
        votes.release(votes.part(0, 0, 4), None, [{"sums": np.zeros((4, 3))}], IncludedNoise(4.0))
    others = (votes, replace(votes, sigma=6.0), replace(votes, kernel="epanechnikov"))
    assert len({put(joint, other, part).digest() for other in others}) == 3


CELLS = 10_000
NOISE = 5.0
QUESTION = HeadCountQuestion(cells=CELLS, most=2, noise=NOISE)


def noise_left(count: int, mode: Mode, without: int, colluding: int = 1) -> tuple[np.ndarray, float]:
    """Return 10⁴ released numbers about nobody if this many sites add no noise, and a person's charge."""
    joint = Joint(count, mode=mode, colluding=colluding)
    request = put(joint, QUESTION, slice(0, 1))

    def source(place: int) -> Any:
        return NoNoise(0) if place < without else SimulationNoise(100 * count + place)

    total = joint.total(request, [np.zeros(CELLS, np.int64)] * count, source)
    release = QUESTION.release(slice(0, 1), None, [{"sums": total}], IncludedNoise(QUESTION.spread))
    return release.arrays["counts"], total_spread(joint.roster, request)


def smooth(numbers: np.ndarray) -> np.ndarray:
    """Remove the rounding steps, which would show in a test of 10⁴ numbers."""
    return numbers + np.random.default_rng(1).uniform(-0.5, 0.5, CELLS)


def surprise(numbers: np.ndarray, spread: float) -> float:
    """Return the probability of a variance this extreme; the variance of rounded normals is 1/12 larger."""
    tail = stats.chi2.cdf((numbers.astype(float) ** 2).sum() / (spread**2 + 1 / 12), len(numbers))
    return float(2 * min(tail, 1 - tail))


@pytest.mark.statistical
@pytest.mark.parametrize(("count", "mode"), [(3, "together"), (5, "together"), (20, "together"), (5, "separate")])
def test_the_total_has_the_stated_noise(count: int, mode: Mode) -> None:
    numbers, spread = noise_left(count, mode, without=0)
    assert surprise(numbers, spread) > 0.001
    assert spread >= QUESTION.spread
    assert stats.kstest(smooth(numbers), stats.norm(scale=spread).cdf).pvalue > 0.001


@pytest.mark.statistical
@pytest.mark.parametrize(("count", "colluding"), [(3, 1), (5, 3), (20, 5)])
def test_hub_and_t_sites_learn_no_more_than_is_charged_and_one_more_does(count: int, colluding: int) -> None:
    """They see the total without their own noise. For a person in a cell, the log likelihood ratio is N(±μ²/2, μ²)."""
    mu = 1 / QUESTION.spread
    expected = stats.norm(-(mu**2) / 2, mu).cdf
    view, fewer = (noise_left(count, "together", without, colluding)[0] for without in (colluding, colluding + 1))
    assert surprise(view, QUESTION.spread) > 0.001
    assert stats.kstest(smooth(view) * mu**2 - mu**2 / 2, expected).pvalue > 0.001
    if count - colluding <= 4:
        assert surprise(fewer, QUESTION.spread) < 1e-6
        assert stats.kstest(smooth(fewer) * mu**2 - mu**2 / 2, expected).pvalue < 0.001
    assert fewer.std() < view.std()
