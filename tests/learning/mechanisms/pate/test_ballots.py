"""The question of a teachers' vote: who is silenced, what is released and charged, and when it ends."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.mechanisms.pate import NO_VOTE, REJECTED, GNMax, PrivacyGroup, aggregator_from_parameters, make_plan
from learning.mechanisms.pate.ballots import Ballot, Stop, TeachersQuestion, VoteBudget, VoteState
from learning.mechanisms.pate.partition import public_participation
from learning.mechanisms.protocol import Draws, PartRelease, People

TEACHERS, POINTS, CLASSES, HOLDERS = 8, 30, 3, 24
PREDICTIONS = np.random.default_rng(2).integers(0, CLASSES, (TEACHERS, POINTS))
#: Holders are assigned to their group's teachers in turn: 8 in the first group, which has fewer teachers, and 16 in the
#: second.
GROUPS = [PrivacyGroup("HIGH", 1.0, 8), PrivacyGroup("LOW", 2.0, 16)]
RESIDUAL = {"name": "residual_gnmax", "sigma": 5.0, "first": 10, "disagreements": 2}


def question(
    aggregator: Any = None, *, allowed: float = 1e6, variant: str = "weighting", **about: Any
) -> TeachersQuestion:
    chosen = aggregator_from_parameters(aggregator) if aggregator else GNMax(sigma=5.0)
    plan = make_plan(
        GROUPS, variant=variant, teachers=TEACHERS, aggregator=chosen, delta=1e-5, classes=CLASSES, weight_scheme="gdp"
    )
    charges = [plan.aggregator.charge(group.sensitivity) for group in plan.groups]
    budgets = tuple(VoteBudget(allowed, allowed, **vars(charge)) for charge in charges)
    return TeachersQuestion(plan, budgets, POINTS, CLASSES, "digest of the points", **about)


def ballot(current: TeachersQuestion) -> Ballot:
    own = [np.flatnonzero(current.plan.members(place)) for place in range(len(current.plan.groups))]
    group = np.array([0] * 8 + [len(own) - 1] * 16)  # merged into one if weights are the same
    teacher = np.array([own[each][place % len(own[each])] for place, each in enumerate(group)])
    return Ballot(PREDICTIONS, 100 + np.arange(HOLDERS), teacher, group)


def people(gone: tuple[int, ...] = ()) -> People:
    caps = np.ones(HOLDERS)
    caps[list(gone)] = 0.0
    return People(100 + np.arange(HOLDERS), caps, np.full(HOLDERS, 1e6), np.zeros(HOLDERS))


def ask(
    current: TeachersQuestion, state: VoteState, most: int = 7, who: People | None = None, seed: int = 1
) -> PartRelease:
    part = current.part(0, len(state.labels), most)
    draws = Draws(SimulationNoise(seed))
    answer = current.answer(part, state, who or people(), lambda: ballot(current), alone=True, draws=draws)
    return current.release(part, state, [answer], draws.noise)


def vote(current: TeachersQuestion, most: int = 7) -> list[PartRelease]:
    """Return the whole vote, batch by batch."""
    releases: list[PartRelease] = []
    while not current.stop(state := current.state(releases[-1].arrays if releases else None)):
        releases.append(ask(current, state, most, seed=len(releases)))
    return releases


def test_batches_add_up_to_one_vote_on_every_point() -> None:
    releases = vote(question())
    assert [release.size for release in releases] == [7, 7, 7, 7, 2]
    assert [row for release in releases for row in release.rows] == list(range(POINTS))
    after = question().state(releases[-1].arrays)
    assert [label for release in releases for label in release.labels] == after.labels.tolist()
    assert question().stop(after) == Stop.USED_UP


def test_a_group_is_charged_the_closed_form_within_the_bound() -> None:
    confident = {"name": "confident_gnmax", "sigma": 6.0, "sigma_threshold": 9.0, "threshold": 3.0}
    current = question(confident)
    state = current.state(None)
    release = ask(current, state)
    answered = sum(label is not None for label in release.labels)
    assert 0 < answered < release.size
    bounds = current.bounds(slice(0, release.size))
    scaled = current.plan.aggregator.parameters()
    for charge, bound, group in zip(release.charges or [], bounds, current.plan.groups, strict=True):
        check, label = (group.weight / scaled["sigma_threshold"]) ** 2, 2 * (group.weight / scaled["sigma"]) ** 2
        assert charge == pytest.approx(release.size * check + answered * label)
        assert charge < bound == pytest.approx(release.size * (check + label))


def test_counts_are_the_noisy_sums_and_cost_what_their_labels_do() -> None:
    """GNMax's label is a function of the counts: the same noise gives the same labels and charges."""
    plain, counting = question(GNMax(sigma=5.0).parameters()), question({"name": "noisy_counts", "sigma": 5.0})
    labels, counted = ask(plain, plain.state(None), POINTS), ask(counting, counting.state(None), POINTS)
    part = slice(0, POINTS)
    answer = counting.answer(
        part, counting.state(None), people(), lambda: ballot(counting), alone=True, draws=Draws(SimulationNoise(1))
    )
    noisy = answer["sums"] + SimulationNoise(1).normal(counting.sigma, (POINTS, CLASSES))
    np.testing.assert_array_equal(counted.counts, np.rint(noisy))
    assert list(counted.labels) == np.argmax(counted.counts, axis=1).tolist()
    assert np.mean(np.array(counted.labels) == np.array(labels.labels)) > 0.8, "except for ties after rounding"
    assert counted.charges == labels.charges and len(labels.counts) == 0
    assert plain.digest() != counting.digest()
    own = np.zeros(POINTS, np.bool_)
    other = counting.released_digest(0, np.array(counted.labels), own, np.array(counted.counts) + 1)
    assert counted.content["digest"] != other


def test_a_teacher_with_a_removed_member_is_silenced_and_charges_stay() -> None:
    current = question()
    state, who = current.state(None), people(gone=(3, 20))
    silent = np.flatnonzero(current.silent(state, who, ballot(current)))
    assert silent.tolist() == sorted(ballot(current).teacher[[3, 20]].tolist())
    part = current.part(0, 0, POINTS)
    draws = Draws(SimulationNoise(0))
    votes = current.answer(part, state, who, lambda: ballot(current), alone=True, draws=draws)["sums"]
    heard = np.setdiff1d(np.arange(TEACHERS), silent)
    np.testing.assert_allclose(votes.sum(axis=1), current.plan.teacher_weights()[heard].sum())
    assert ask(current, state, who=who).charges == ask(current, state).charges


def test_the_stop_does_not_depend_on_votes_or_withdrawals() -> None:
    """The remaining budget depends only on which queries were answered."""
    current = question(allowed=1.7)
    ends = []
    for gone in ((), tuple(range(HOLDERS))):
        state = current.state(None)
        while not current.stop(state):
            state = current.state(ask(current, state, who=people(gone)).arrays)
        ends.append((current.stop(state), len(state.labels)))
    assert ends[0] == ends[1]
    assert ends[0][0] == Stop.SHARE and 0 < ends[0][1] < POINTS
    spent = sum(np.array(release.charges) for release in vote(current))
    assert (spent <= 1.7).all()
    assert (spent + np.array(current.bounds(slice(0, 1))) > 1.7).any(), "the next query is too expensive"


def test_an_exhausted_group_is_silent_and_charged_nothing_more() -> None:
    current = question(allowed=0.9, continues_when_exhausted=True)
    dear = current.budgets[1].answer / current.budgets[0].answer
    assert dear > 1.2, "the groups are exhausted one after the other"
    releases = vote(current, most=3)
    exhausted = [place for release in releases for place in release.exhausted]
    assert exhausted == [1, 0]
    after = current.state(releases[-1].arrays)
    assert current.stop(after) == Stop.RETIRED
    charges = np.array([release.charges for release in releases])
    last = int(np.flatnonzero(charges[:, 1])[-1])
    assert last < len(releases) - 1 and (charges[: last + 1, 1] > 0).all() and not charges[last + 1 :, 1].any()
    before = current.state(releases[last].arrays)
    silent = current.silent(before, people(), ballot(current))
    np.testing.assert_array_equal(silent, current.plan.members(1))
    assert (charges.sum(axis=0) <= 0.9).all()


@pytest.mark.parametrize("wanted", [1, 10])
def test_a_vote_ends_with_the_query_that_brings_the_last_wanted_label(wanted: int) -> None:
    confident = {"name": "confident_gnmax", "sigma": 6.0, "sigma_threshold": 9.0, "threshold": 3.0}
    current = question(confident, wanted_labels=wanted)
    releases = vote(current)
    after = current.state(releases[-1].arrays)
    assert current.stop(after) == Stop.ENOUGH
    assert (after.labels != REJECTED).sum() == wanted and after.labels[-1] != REJECTED


def student(labels: np.ndarray) -> np.ndarray:
    """Return a student that predicts class 0 once there are labels."""
    return np.tile([0.5, 0.25, 0.25] if len(labels) else [0.0] * 3, (POINTS, 1))


@pytest.mark.parametrize("first", [10, 20])
def test_residual_votes_begin_after_the_plain_ones(first: int) -> None:
    current = question({**RESIDUAL, "first": first}, variant="standard", student=student)
    releases = vote(current)
    after = current.state(releases[-1].arrays)
    assert (after.guesses[:first] == NO_VOTE).all() and (after.guesses[first:] == 0).all()
    assert first in np.cumsum([release.size for release in releases]), "a batch ends where the plain vote does"
    said = PREDICTIONS[:, first:]
    np.testing.assert_array_equal(current.disagreements(after, ballot(current)), (said != 0).sum(axis=1))
    paid = [sum(release.charges or []) for release in releases if release.rows[0] >= first]
    assert paid[0] > 0 and not any(paid[1:]), "all residual votes are charged once"


def test_a_group_that_could_not_pay_for_a_query_does_not_take_part_in_free_ones() -> None:
    checked = VoteBudget(1.05, 1.05, check=0.1, label=0.2)
    assert checked.affordable(np.array([True, True, True, False])) == 3, "its own noise does not decide this"
    budget = VoteBudget(1.0, 1.0, check=0.0, label=0.3, first=5, rest=0.5)
    answered = np.ones(20, dtype=bool)
    assert budget.costs(6, answered).tolist() == [0.0] * 20
    assert budget.affordable(answered) == 3


def test_a_teacher_that_takes_part_in_some_queries_is_charged_for_exactly_these() -> None:
    """This includes teachers that a withdrawal silenced; a group's charge is the largest of its members'."""
    whole = question(variant="vanishing")
    current = replace(whole, participation=public_participation(whole.plan, POINTS, "any public text"))
    assert current.participation is not None and 0 < current.participation.mean() < 1
    assert current.digest() != whole.digest()
    label, releases = 2 / current.plan.aggregator.sigma**2, []
    while not current.stop(state := current.state(releases[-1].arrays if releases else None)):
        part = current.part(0, len(state.labels), 7)
        who, draws = people(gone=(3,) if releases else ()), Draws(SimulationNoise(len(releases)))
        answer = current.answer(part, state, who, lambda: ballot(current), alone=True, draws=draws)
        silent = np.isin(np.arange(TEACHERS), ballot(current).teacher[[3]] if releases else [])
        here = current.participation[:, part]
        np.testing.assert_array_equal(answer["sums"].sum(axis=1), here[~silent].sum(axis=0))
        release = current.release(part, state, [answer], draws.noise)
        charged = np.array(release.classes)[answer["group"]]
        np.testing.assert_allclose(charged, label * here[ballot(current).teacher].sum(axis=1))
        releases.append(release)
    due = label * current.participation.sum(axis=1)
    np.testing.assert_allclose(current.spent(current.state(releases[-1].arrays)), due)
    largest = [due[current.plan.members(place)].max() for place in range(len(current.plan.groups))]
    np.testing.assert_allclose(np.sum([release.charges for release in releases], axis=0), largest)


def test_a_vote_with_some_teachers_ends_before_any_of_them_could_overspend() -> None:
    whole = question(variant="vanishing")
    drawn = public_participation(whole.plan, POINTS, "any public text")
    label = 2 / whole.plan.aggregator.sigma**2
    allowed = label * (drawn[:, :20].sum(axis=1).max() + 0.5)
    current = replace(question(variant="vanishing", allowed=allowed), participation=drawn)
    after = current.state(vote(current)[-1].arrays)
    ended, paid = len(after.labels), current.spent(after)
    assert current.stop(after) == Stop.SHARE and (paid <= allowed).all()
    assert (paid + label * drawn[:, ended] > allowed).any(), "a teacher cannot pay for the next query"


def test_different_questions_have_different_digests() -> None:
    before = question()
    louder = replace(before.plan, aggregator=GNMax(sigma=6.0))
    others = [replace(before, **change) for change in ({"points": "others"}, {"plan": louder}, {"size": POINTS - 1})]
    assert len({each.digest() for each in (before, *others, question(variant="standard"), question())}) == 5
