"""Questions of all mechanisms, without a database: sums of answers, bounds of charges, states after releases."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.neighbours.released_counts import VotesQuestion
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.protocol import Draws, People, Question, Records
from learning.mechanisms.sampled_steps.run_plan import plan_sampled
from learning.mechanisms.sampled_steps.training import CHARGE, SampledQuestion, SampledSteps
from learning.mechanisms.steps.descent import Descent, StepsQuestion
from learning.mechanisms.steps.steps_plan import StepsPlan
from learning.outcomes import Classes, Labels, Numbers, Outcome, Target
from learning.representations import Thresholds

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
    """Two records, or cells, of each holder; of some of them alone, by a mask."""
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
        assert question.bounds(question.part(CHARGE + 1, 0, 4)) is None, "chunks are paid for by the charge"
    else:
        assert (answer["charge"] <= limit).all()


def test_several_shards_take_one_step_at_a_time_and_the_state_after_a_release_is_what_its_file_says() -> None:
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
    # 0.5, 1.5 and 2.5 of 0 to 3 in sixteen parts
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
