"""Questions of all mechanisms, without a database: sums of answers, bounds on charges, states after releases."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.caps import caps_of
from common.noise import SimulationNoise
from learning.mechanisms.choices import Choices, ChoicesError
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.neighbours.released_counts import VotesQuestion
from learning.mechanisms.neighbours.rounds import NeighbourChoices
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.pate.teachers import Teachers
from learning.mechanisms.protocol import (
    Draws,
    People,
    PlannedLevel,
    Question,
    Records,
    at_threshold,
    best_threshold,
    signal,
)
from learning.mechanisms.sampled_steps.run_plan import Samples, plan_sampled
from learning.mechanisms.sampled_steps.training import CHARGE, SampledQuestion, SampledSteps
from learning.mechanisms.steps.descent import Descent, StepsQuestion
from learning.mechanisms.steps.steps_plan import Steps, StepsPlan
from learning.outcomes import Classes, Labels, Numbers, Outcome, Target
from learning.representations import Thresholds
from learning.students import STUDENTS, suggested_student
from training.methods import METHODS
from training.services.runs import FEW_POINTS, suggested_method

CAPS = np.array([1.0, 4.0])
HOLDERS, CLASSES = 24, 3
POINTS = np.random.default_rng(7).uniform(0, 1, (20, 2)).astype(np.float32)
FITTED = Thresholds().fit(POINTS)
PUBLIC = FITTED.transform(POINTS)
NUMBERS, LABELS = Numbers(0, 3, "kg"), Labels(("ill", "old"))


def votes(outcome: Outcome = Classes(("a", "b", "c"))) -> VotesQuestion:  # noqa: B008  # frozen
    return VotesQuestion(
        rows=np.arange(20),
        queries=PUBLIC,
        radii=radii(PUBLIC, PUBLIC, 0.4),
        voters=np.full(20, 8.0),
        predicted=None,
        fitted=FITTED,
        sigma=5.0,
        radius_share=0.4,
        kernel="uniform",
        outcome=outcome,
        index=0,
        promises=2,
    )


def steps() -> StepsQuestion:
    plan = StepsPlan(5.0, 6, 1.0, 0.5, 0.1, 0.1, 4.0, 20.0, 9.0, 1.0, {"all": 1.0})
    return StepsQuestion(plan, FITTED, Descent.begin(plan, PUBLIC, CLASSES), 0, CAPS)


def sampled(target: Target | None = None) -> SampledQuestion:
    how: dict[str, Any] = {"share": 0.5, "slack": 1e-8, "steps": 6, "rate": 1.0, "clip_norm": 1.0, "weights": 9}
    plan, outputs = plan_sampled("scale", CAPS, [12, 12], **how), CLASSES if target is None else target.outputs
    begin = SampledSteps(np.zeros(3 * outputs), np.zeros(3 * outputs), 0)
    return SampledQuestion(plan, "linear", (2,), 1.0, outputs, None, 0.5, 0.0, begin, CAPS, target)


def head_count() -> HeadCountQuestion:
    return HeadCountQuestion(cells=3, most=2, noise=5.0)


def people(limit: float = 10.0) -> People:
    caps = np.repeat(CAPS, HOLDERS // 2)
    return People(100 + np.arange(HOLDERS), caps, np.full(HOLDERS, limit), np.zeros(HOLDERS))


def records(question: Question, among: np.ndarray | None = None) -> Any:
    """Return two records, or cells, of each holder, or of some holders selected by a mask."""
    if isinstance(question, HeadCountQuestion):
        cells = np.array([[(place + cell) % 3 > 0 for place in range(HOLDERS)] for cell in range(3)])
        return cells if among is None else cells[:, among]
    rng, owner = np.random.default_rng(3), np.repeat(np.arange(HOLDERS), 2)
    x, classes = rng.uniform(0, 1, (len(owner), 2)).astype(np.float32), owner % CLASSES
    if getattr(question, "outcome", None) == NUMBERS or getattr(question, "target", None) == NUMBERS:
        classes = NUMBERS.coded([classes + 0.5])
    mine = np.ones(len(owner), dtype=bool) if among is None else among[owner]
    place = owner[mine] if among is None else np.searchsorted(np.flatnonzero(among), owner[mine])
    fitted = question.fitted
    return Records(x[mine] if fitted is None else fitted.transform(x[mine]), classes[mine], place)


def draws() -> Draws:
    return Draws(SimulationNoise(1), 1)


QUESTIONS = [(votes,), (votes, NUMBERS), (votes, LABELS), (steps,), (sampled,), (sampled, NUMBERS), (sampled, LABELS)]


@pytest.mark.parametrize("made", [*QUESTIONS, (head_count,)], ids=lambda made: made[0].__name__)
def test_nobody_is_charged_more_than_the_bounds_or_beyond_a_limit(made: tuple[Any, ...]) -> None:
    limit, question = 0.12, made[0](*made[1:])
    who, part = people(limit), question.part(CHARGE, 0, 4)
    answer = question.answer(part, question.state(None), who, lambda: records(question), alone=True, draws=draws())
    release = question.release(part, question.state(None), [answer], SimulationNoise(2))
    bounds = question.bounds(slice(part.start, part.start + release.size))
    assert bounds is not None and HOLDERS % len(bounds) == 0
    most = np.repeat(bounds, HOLDERS // len(bounds))
    assert (answer["charge"] <= most * (1 + 1e-12)).all() and answer["charge"].max() > 0
    if isinstance(question, SampledQuestion):
        assert question.bounds(question.part(CHARGE + 1, 0, 4)) is None, "the charge of batch 0 pays for chunks"
    else:
        assert (answer["charge"] <= limit).all()


def test_with_several_shards_each_batch_is_one_step_and_stored_states_match() -> None:
    question, who = steps(), people()
    part, state, answers = question.part(0, 0, 4), question.state(None), []
    for mask in (who.holders % 2 == 0, who.holders % 2 == 1):
        among = records(question, mask)
        answers.append(question.answer(part, state, who.of(mask), lambda: among, alone=False, draws=draws()))  # noqa: B023
    release = question.release(part, state, answers, SimulationNoise(5))
    assert release.size == 1 and part.stop == 4
    assert question.bounds(slice(0, release.size))[1] == pytest.approx(1 / 25)
    part, state = question.part(0, 0, 3), question.state(None)
    answer = question.answer(part, state, who, lambda: records(question), alone=True, draws=draws())
    release = question.release(part, state, [answer], SimulationNoise(5))
    after = question.state(release.arrays)
    assert after.step == 3 and not after.same(state)
    for each in release.arrays["sums"]:
        state = state.after(each)
    assert after.same(state)


def test_different_questions_have_different_digests() -> None:
    one = votes()
    other = replace(one, radii=one.radii + 1)
    digests = {one.digest(), other.digest(), steps().digest(), sampled().digest(), head_count().digest()}
    assert len(digests) == 5
    assert one.digest() == votes().digest()
    assert replace(one, sigma=6.0).describe() != one.describe()


def test_people_vote_for_the_part_of_the_range_that_holds_their_number() -> None:
    question, who = votes(NUMBERS), people()
    part = question.part(0, 0, 4)
    shares = question.answer(part, None, who, lambda: records(question), alone=False, draws=draws())["sums"]
    classes = votes()
    plain = classes.answer(part, None, who, lambda: records(classes), alone=False, draws=draws())["sums"]
    # 0.5, 1.5 and 2.5 in a range from 0 to 3 with sixteen bins
    assert np.array_equal(shares[:, [2, 8, 13]], plain)
    assert shares.sum() == plain.sum() and question.digest() != classes.digest()


def test_head_counts_skip_full_accounts_and_charge_by_cells() -> None:
    question, part = HeadCountQuestion(cells=3, most=3, noise=2.0), slice(0, 1)
    who = People(np.arange(4), np.ones(4), np.array([1.0, 1.0, 1 / 12, 0.0]), np.zeros(4))
    counted = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 0]], dtype=bool)
    answer = question.answer(part, None, who, lambda: counted, alone=True, draws=draws())
    assert answer["charge"].tolist() == pytest.approx([3 / 12, 1 / 12, 1 / 12, 0.0])
    assert answer["sums"].tolist() == [3, 1, 1]
    assert question.spread == pytest.approx(2 * np.sqrt(3))


GNMAX = {"name": "gnmax", "sigma": 4.0}
GIVEN: dict[type[Choices], dict[str, Any]] = {
    NeighbourChoices: {},
    Steps: {},
    Samples: {},
    Teachers: {"teachers": 5, "learner": "random_forest", "aggregator": GNMAX},
}


@pytest.mark.parametrize("kind", GIVEN)
def test_every_choice_is_described_and_its_default_can_be_chosen(kind: type[Choices]) -> None:
    chosen = kind.from_json(GIVEN[kind])
    assert kind.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    for choice in kind.described():
        assert choice.label
        assert choice.minimum is not None or choice.type not in (int, float)
        assert choice.default is None or not list(choice.faults(choice.default))
        assert not choice.values or set(choice.rehearsed) <= set(choice.values)
        assert set(choice.only_if) <= {other.name for other in kind.described()}


@pytest.mark.parametrize(
    ("kind", "document", "names"),
    [
        (NeighbourChoices, {"sigma": -1.0, "rounds": True, "kernel": "gauss"}, ["rounds", "sigma", "kernel"]),
        (NeighbourChoices, {"embedded": "yes"}, ["embedded"]),
        (NeighbourChoices, {"rounds": 1, "embedded": True, "first_queries": 3}, ["first_queries", "embedded"]),
        (Steps, {"steps": 5, "network": "mlp"}, [""]),
        (Steps, [], [""]),
        (Teachers, {}, ["learner"]),
        (Teachers, GIVEN[Teachers] | {"learner_parameters": {"depths": 3}}, ["learner_parameters"]),
        (Teachers, GIVEN[Teachers] | {"aggregator": GNMAX | {"sigma": 0}}, ["aggregator"]),
    ],
)
def test_an_impossible_choice_is_named(kind: type[Choices], document: Any, names: list[str]) -> None:
    with pytest.raises(ChoicesError) as refused:
        kind.from_json(document)
    assert [name for name, _message in refused.value.faults] == names


def test_a_suggestion_can_be_taken_and_few_public_images_add_a_note() -> None:
    for kind in ("image", "table"):
        for points in (0, 1, FEW_POINTS - 1, FEW_POINTS, 10**6):
            suggested = suggested_method(kind, points)
            assert suggested.method in METHODS and suggested.student in STUDENTS
            assert suggested.student == suggested_student(kind).name
            assert ("Add more" in suggested.because) == (kind == "image" and 0 < points < FEW_POINTS)


def test_the_published_example_of_levels() -> None:
    """60,000 people, 34, 43 and 23 % of them at ε 1, 2 and 3 (δ = 1e-5)."""
    caps = caps_of([1.0, 2.0, 3.0], 1e-5)
    levels = [PlannedLevel(str(cap), cap, 60_000 * part) for cap, part in zip(caps, (0.34, 0.43, 0.23), strict=True)]
    assert signal(levels) == pytest.approx(28_330, rel=1e-3)
    assert best_threshold(levels) == caps[1]
    assert signal(at_threshold(levels, caps[1])) == pytest.approx(19_862, rel=1e-3)


def test_the_best_threshold_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _study in range(60):
        number = int(rng.integers(1, 7))
        levels = [PlannedLevel(str(each), *rng.uniform(0.01, 20, 2)) for each in range(number)]
        # Each person alone, at every cap that occurs.
        people = [(level.cap, level.holders) for level in levels]
        found = {cap: sum(count for theirs, count in people if theirs >= cap) * cap**0.5 for cap, _count in people}
        best = best_threshold(levels)
        assert found[best] == max(found.values())
        assert signal(at_threshold(levels, best)) == pytest.approx(found[best])
        assert signal(levels) >= found[best], "personal promises never give a smaller signal"
