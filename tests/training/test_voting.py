"""The vote of teachers: when it stops, what it charges, who votes, and that labels and charges are atomic."""

from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from scipy.stats import norm

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from common.artifacts import arrays_load
from common.noise import SimulationNoise
from consent import services as consent_services
from consent.models import DataHolder, Study
from learning.mechanisms.pate import NO_VOTE, REJECTED
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.partition import public_participation
from learning.mechanisms.protocol import PlanError
from tests.factories import decide, policy_approve, user_create
from tests.training.asking import account, asking_of, vote_batch
from tests.training.runs import (
    TABLE_RUN,
    assert_labels_and_register_agree,
    rehearsal_with_table,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
)
from tests.training.test_concurrency import at_once
from training.engine import commits, questions
from training.methods import method_of, student_data_of
from training.methods.pate import interim_probabilities, state_of, vote_question
from training.methods.pate_teachers import ballot_load, vote_open
from training.models import Run
from training.selectors import run_groups
from training.services import runs as run_commands
from training.services.downloads import labels_arrays, labels_table
from training.verification import release_faults

pytestmark = pytest.mark.django_db

CHEAP = {"name": "gnmax", "sigma": 40.0}


def run_voting(study: Study, *, share: float = 1.0, **fields: Any) -> Run:
    """Return a run whose vote has been opened; no batch has been asked."""
    run = run_teach(run_start(study, share=share, **TABLE_RUN | fields))
    assert vote_open(run)
    return Run.objects.get(pk=run.pk)


def vote_to_the_end(run: Run) -> Run:
    while vote_batch(run):
        run.refresh_from_db()
    return run


def holder_of(study: Study, level: str) -> DataHolder:
    return DataHolder.objects.filter(consent_events__level=level, study=study).earliest("pk")


def teachers_of(run: Run, holder: DataHolder) -> list[int]:
    assignment = arrays_load(run.assignment)
    return sorted(assignment["teacher"][assignment["holder"] == holder.pk].tolist())


@pytest.mark.parametrize(
    ("fields", "reason", "labels"),
    [
        ({"aggregator": CHEAP, "batch_size": 5}, Run.StopReason.USED_UP, 12),
        ({"aggregator": CHEAP, "wanted_labels": 5}, Run.StopReason.ENOUGH, 5),
    ],
)
def test_a_vote_says_why_it_ended(fields: dict[str, Any], reason: str, labels: int) -> None:
    run = vote_to_the_end(run_voting(study_with_table(), **fields))
    assert (run.status, run.stop_reason) == (Run.Status.LEARNING, reason)
    assert run.labels == labels
    if "batch_size" in fields:
        assert list(run.batches.values_list("index", "start", "size")) == [(0, 0, 5), (1, 5, 5), (2, 10, 2)]


def test_enough_labels_are_enough_even_where_points_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "noise_of", lambda run: SimulationNoise(1))
    picky = {"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 60.0, "threshold": 6.0}
    run = vote_to_the_end(run_voting(study_with_table(points=30), aggregator=picky, wanted_labels=4, batch_size=30))
    assert (run.labels, run.stop_reason) == (4, Run.StopReason.ENOUGH)
    assert run.rejected == run.queries.filter(label__isnull=True).count() > 0
    assert run.queries.latest("row").label is not None, "the query with the last label is the last one"


def test_a_prefix_is_affordable_up_to_the_query_that_could_cost_too_much() -> None:
    """A query counts as if it were answered, so whether it stops the vote does not depend on its own noise."""
    budget = VoteBudget(cap=1.0, allowed=1.0, check=0.1, label=0.2)
    # asked + answered before: .3, .4, .7, .8, 1.1
    assert budget.affordable(np.array([False, True, False, True, True, True])) == 4
    assert budget.affordable(np.array([False] * 20)) == 8, "0.7 are spent, and the next query could cost 0.3"


@pytest.mark.parametrize(
    "variant", ["weighting", *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("standard", "upsampling"))]
)
def test_stop_is_independent_of_consents_and_spending(variant: str) -> None:
    """Two studies have the same head counts, but hardly anybody has joined the second."""
    ends = []
    for slug, levels in (("all", "HAL"), ("few", "HAL" + "-" * 27)):
        study = study_with_table(slug)
        for holder, letter in zip(study.holders.order_by("pk"), levels * 10, strict=False):
            if letter == "-":
                consent_services.consent_withdraw(holder=holder, acting_user=None)
        run = vote_to_the_end(run_voting(study, aggregator={"name": "gnmax", "sigma": 8.0}, variant=variant))
        ends.append((run.stop_reason, run.position, run.spent, run.plan))
    assert ends[0] == ends[1]
    assert ends[0][0] == Run.StopReason.SHARE


@pytest.mark.parametrize("variant", [pytest.param("standard", marks=pytest.mark.exhaustive), "weighting", "upsampling"])
def test_what_is_charged_is_the_closed_form(variant: str) -> None:
    """2(kw)²/σ² for a label and (kw)²/σ_T² for a check, for everybody in a teacher, including merged groups."""
    confident = {"name": "confident_gnmax", "sigma": 30.0, "sigma_threshold": 50.0, "threshold": 5.0}
    study = study_with_table()
    run = vote_to_the_end(run_voting(study, aggregator=confident, variant=variant))
    voted = run.plan["aggregator"]
    assert run.position == 12
    for group, promise in zip(run.plan["groups"], ("HIGH", "AVERAGE", "LOW"), strict=False):
        moved = group["weight"] * group["factor"]
        due = run.position * moved**2 / voted["sigma_threshold"] ** 2 + run.labels * 2 * moved**2 / voted["sigma"] ** 2
        for holder in study.holders.filter(consent_events__level=promise):
            assert account(holder) == pytest.approx(due, rel=1e-12)
            assert due <= caps_of(group["epsilon"], study.delta)
    assert_labels_and_register_agree(run)
    if variant == "weighting":
        study = study_with_table("merged", levels="HHHHHAAAAL", holders=20)
        run = vote_to_the_end(run_voting(study, teachers=4))
        assert [group["merged"] for group in run.plan["groups"]] == [[], ["LOW"]]
        assert account(holder_of(study, "AVERAGE")) == account(holder_of(study, "LOW")) == run.spent[1] > run.spent[0]


def test_a_vote_under_laplace_noise_is_charged_by_its_pure_privacy() -> None:
    run = vote_to_the_end(
        run_voting(study_with_table(), aggregator={"name": "lnmax", "gamma": 0.01}, variant="standard")
    )
    pure = 2 * 0.01
    mu = 2 * norm.ppf(np.exp(pure) / (1 + np.exp(pure)))
    assert run.spent == pytest.approx([12 * mu**2], rel=1e-9)


def test_a_run_keeps_to_its_share_and_returns_what_it_did_not_need() -> None:
    study = study_with_table()
    first = vote_to_the_end(run_voting(study, share=0.4, aggregator={"name": "gnmax", "sigma": 10.0}))
    assert first.stop_reason == Run.StopReason.SHARE and first.labels == first.plan["answers"] < 12
    used = shares(study)[first.pk].used
    assert 0.3 < used <= 0.4
    assert used == pytest.approx(max(s / b["cap"] for s, b in zip(first.spent, first.plan["budgets"], strict=True)))
    run_finish(first)
    second = vote_to_the_end(run_voting(study, share=share_free(study), aggregator={"name": "gnmax", "sigma": 8.0}))
    assert second.stop_reason == Run.StopReason.SHARE
    caps = dict(zip(("HIGH", "AVERAGE", "LOW"), caps_of([1.0, 2.0, 3.0], study.delta), strict=True))
    for level, cap in caps.items():
        assert 0.8 * cap < account(holder_of(study, level)) <= cap
    assert list(study_faults(study)) == []


def test_a_worker_ends_no_round_that_another_has_just_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_voting(study_with_table(), aggregator=CHEAP)

    def last(_rounds: Any) -> None:
        """Find no round, and let another worker open it at the same time."""
        monkeypatch.undo()
        assert asking_of(run).step(Run.objects.get(pk=run.pk))

    monkeypatch.setattr(Run.rounds.related_manager_cls, "last", last, raising=False)
    asking_of(run).step(run)
    run.refresh_from_db()
    assert (run.rounds.count(), run.status) == (1, Run.Status.ASKING)


@pytest.mark.django_db(transaction=True)
def test_workers_that_vote_at_the_same_time_charge_nothing_twice() -> None:
    run = run_voting(study_with_table(), aggregator={"name": "gnmax", "sigma": 60.0}, batch_size=1)

    def work() -> None:
        while vote_batch(Run.objects.get(pk=run.pk)):
            pass

    assert at_once([work] * 3) == [None] * 3
    run.refresh_from_db()
    assert (run.position, run.status) == (12, Run.Status.LEARNING)
    assert_labels_and_register_agree(run)


@pytest.mark.parametrize("variant", ["weighting", "upsampling"])
def test_a_withdrawal_silences_the_holders_teachers_from_the_next_batch(silenced, variant) -> None:
    """In upsampling, all of them are silenced, even if the holder consents again."""
    study = study_with_table()
    run = run_voting(study, variant=variant, aggregator=CHEAP)
    vote_batch(run)
    holder = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    vote_batch(run)
    decide(holder, "LOW")
    run = vote_to_the_end(run)
    assert silenced == [[], teachers_of(run, holder), teachers_of(run, holder)]
    assert len(silenced[1]) == (run.plan["groups"][2]["factor"] if variant == "upsampling" else 1)
    assert run.labels == 12, "the others still vote"
    assert account(holder) == run.spent[2], "their absence shows in every further vote, so they are charged to the end"


def test_stronger_protection_or_a_smaller_epsilon_silences_at_once(silenced: list[list[int]]) -> None:
    """Weaker protection changes nothing, and the policy, which is public, does not change when the vote stops."""
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    stricter, weaker = holder_of(study, "AVERAGE"), holder_of(study, "HIGH")
    high = [teachers_of(run, holder) for holder in study.holders.filter(consent_events__level="HIGH")]
    decide(weaker, "LOW")
    vote_batch(run)
    decide(stricter, "HIGH")
    vote_batch(run)
    policy_approve(study, high=0.5, average=2.0, low=3.0)
    run = vote_to_the_end(run)
    assert silenced == [[], teachers_of(run, stricter), np.unique([*high, teachers_of(run, stricter)]).tolist()]
    assert run.position == 12


def test_a_vote_without_teachers_continues_with_only_noise(silenced: list[list[int]]) -> None:
    """Consents alone show that everybody has left, so this must not end the vote."""
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    vote_batch(run)
    for holder in study.holders.all():
        consent_services.consent_withdraw(holder=holder, acting_user=None)
    run = vote_to_the_end(run)
    assert (run.stop_reason, run.position) == (Run.StopReason.USED_UP, 12)
    assert silenced[1:] == [[*range(6)]] * 2


def test_a_stricter_promise_before_the_vote_removes_and_a_weaker_one_stays() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    stricter, looser = holder_of(study, "LOW"), holder_of(study, "HIGH")
    decide(stricter, "HIGH")
    decide(looser, "LOW")
    vote_open(run)
    run = run_teach(run)
    assert vote_open(run)
    run = vote_to_the_end(Run.objects.get(pk=run.pk))
    assert account(stricter) == 0.0, "they are charged nothing for a vote that they are not in"
    assert stricter.pk not in arrays_load(run.assignment)["holder"]
    assert account(looser) == run.spent[0], "their teacher votes with its former weight"


def test_the_vote_opens_only_after_affected_teachers_were_retrained(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    gone = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=gone, acting_user=None)
    faster = iter([True])

    def lock(study_id: int) -> Study:
        if next(faster, False):
            assert vote_open(Run.objects.get(pk=run.pk)), "the other worker retrains a teacher"
        return consent_services.study_lock(study_id)

    monkeypatch.setattr(commits, "study_lock", lock)
    assert not vote_open(run)
    run = run_finish(run)
    assert account(gone) == 0.0
    assert run.status == Run.Status.FINISHED


PROPORTIONS = {"variant": "weighting", "weight_scheme": "proportional", "batch_size": 5}


def test_an_exhausted_group_is_charged_nothing_more(silenced: list[list[int]]) -> None:
    stop = vote_to_the_end(run_voting(study_with_table("stop", points=60), **PROPORTIONS))
    assert stop.stop_reason == Run.StopReason.SHARE
    silenced.clear()
    study = study_with_table(points=60)
    run = vote_to_the_end(run_voting(study, **PROPORTIONS, on_exhausted="retire"))
    assert run.stop_reason == Run.StopReason.RETIRED
    assert run.position > stop.position, "the vote continued"
    assert [group.retired for group in run_groups(run)] == [True] * 3
    costs = [release.content["charges"] for release in Release.objects.filter(run=run.pk).order_by("batch")]
    first = int(np.argmin(np.count_nonzero(costs, axis=0)))
    charges = [each[first] for each in costs]
    paid = [place for place, charge in enumerate(charges) if charge]
    assert paid == list(range(len(paid)))
    assert len(paid) < len(charges)
    assert len(silenced[-1]) >= run.plan["groups"][first]["teachers"]
    assert_labels_and_register_agree(run)
    assert list(release_faults(Run.objects.get(pk=run.pk))) == []


def test_the_noise_of_a_real_vote_cannot_be_repeated() -> None:
    study, votes = study_with_table(points=40), []
    for _ in range(2):
        run = run_voting(study, share=0.5, aggregator={"name": "gnmax", "sigma": 200.0}, batch_size=40)
        assert not questions.noise_of(run).is_simulation
        run = vote_to_the_end(run)
        votes.append(list(run.queries.values_list("label", flat=True)))
        run_commands.run_cancel(run=run, acting_user=user_create("olga"))
    assert votes[0] != votes[1]


RESIDUAL = {"name": "residual_gnmax", "sigma": 40.0, "first": 10, "disagreements": 2}
INTERACTIVE = {"name": "interactive_gnmax", "sigma": 60.0, "sigma_threshold": 50.0, "threshold": 1.0}
INTERACTIVE |= {"confidence": 0.6}


def looked_at(aggregator: dict[str, Any], **fields: Any) -> Run:
    study = study_with_table(points=60, holders=40, delta=1e-4, retain_votes=True)
    seeds = iter(range(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "noise_of", lambda run: SimulationNoise(next(seeds)))
        run = run_finish(run_start(study, **{**TABLE_RUN, "teachers": 20, "aggregator": aggregator, **fields}))
    assert (run.status, run.message) == (Run.Status.FINISHED, "")
    assert [*study_faults(study), *release_faults(run)] == []
    for batch in run.batches.select_related("run"):
        release = Release.objects.get(run=run.pk, batch=batch.index)
        assert list(method_of(run).replay_faults(batch, release)) == []
    return run


@pytest.mark.exhaustive
def test_all_residual_votes_after_the_plain_one_are_paid_once() -> None:
    run = looked_at(RESIDUAL, batch_size=7, variant="standard")
    assert (run.position, run.labels, run.stop_reason) == (60, 60, Run.StopReason.USED_UP)
    batches = list(run.batches.values_list("start", "size"))
    assert batches[:3] == [(0, 7), (7, 3), (10, 7)], "a batch ends at the same query as the plain vote"
    label, rest = 2 / 40.0**2, 4 * 2 / 40.0**2
    assert run.spent == pytest.approx([10 * label + rest])
    charges = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch").values_list("charge", flat=True)
    assert list(charges) == pytest.approx([7 * label, 3 * label, rest] + [0.0] * (len(batches) - 3))
    assert balances(run.study).spent == pytest.approx(10 * label + rest)


def test_teachers_contribute_no_more_often_than_was_paid_for() -> None:
    run = looked_at(RESIDUAL, batch_size=7, variant="standard")
    ballot, question = ballot_load(run.pk), vote_question(run)
    contributed, disagreed = np.zeros((2, 20), dtype=int)
    positions = state_of(question, run).guesses
    for batch in run.batches.filter(start__gte=10).order_by("index"):
        said = ballot.predictions[:, batch.start : batch.start + batch.size]
        guesses = positions[batch.start : batch.start + batch.size]
        votes = question.plan.aggregator.count(said, 3, np.ones(20), guesses=guesses, disagreed=disagreed)
        for place, guess in enumerate(guesses):
            differs = (said[:, place] != guess) & (said[:, place] != NO_VOTE)
            speaks = differs & (contributed < 2)
            expected = np.bincount(said[speaks, place], minlength=3)
            expected[guess] += 20 - speaks.sum()
            np.testing.assert_array_equal(votes[place], expected)
            contributed += speaks
            disagreed += differs
    assert contributed.max() <= 2
    np.testing.assert_array_equal(question.disagreements(state_of(question, run), ballot), disagreed)


def test_a_residual_vote_beyond_the_share_never_begins() -> None:
    run = looked_at(RESIDUAL | {"disagreements": 400}, batch_size=7, variant="standard")
    assert (run.position, run.stop_reason) == (10, Run.StopReason.SHARE)
    assert run.plan["answers"] == 10


def test_interactive_gnmax_pays_for_checks_and_its_student_knows_released_labels_alone() -> None:
    run = looked_at(INTERACTIVE, batch_size=10)
    assert 0 < run.labels < run.labels + run.reinforced <= run.position
    for spent, budget in zip(run.spent, run.plan["budgets"], strict=True):
        assert spent == pytest.approx(run.position * budget["check"] + run.labels * budget["label"])
    labels = state_of(vote_question(run), run).labels
    ninth, tenth = np.flatnonzero(labels != REJECTED)[8:10]
    shares = interim_probabilities(run, labels[: tenth + 1])
    assert shares.shape == (60, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    assert not interim_probabilities(run, labels[: ninth + 1]).any()
    # A label that the teachers do not contradict is kept free of charge and used to train the student.
    reinforced = run.queries.filter(reinforced=True)
    state = state_of(vote_question(run), run)
    rows = reinforced.order_by("row").values_list("row", flat=True)
    assert list(rows) == np.flatnonzero(state.reinforced).tolist() and len(rows) == run.reinforced > 0
    for batch in run.batches.order_by("index"):  # each is the label that the student predicted in the previous batch
        student = interim_probabilities(run, state.labels[: batch.start])
        own = [row for row in rows if batch.start <= row < batch.start + batch.size]
        assert student[own].argmax(axis=1).tolist() == state.labels[own].tolist()
        assert (student[own].max(axis=1) > INTERACTIVE["confidence"]).all()
    taught = student_data_of(run).releases
    assert taught.rows.tolist() == np.flatnonzero(state.labels != REJECTED).tolist()
    card = run.students.get().card["learned_from"]
    assert (card["labels"], card["reinforced"]) == (run.labels + run.reinforced, run.reinforced)
    heading, *lines = labels_table(run)
    assert heading == ["row", "label", "reinforced"]
    assert [line[0] for line in lines if line[2]] == list(rows) and len(lines) == run.labels + run.reinforced
    assert labels_arrays(run)["reinforced"].sum() == run.reinforced
    # A free label cannot be turned into a charged one, or the other way round.
    run.queries.filter(row=rows[0]).update(reinforced=False)
    faults = "\n".join(release_faults(run))
    assert "the labels or counts of" in faults and "its number of reinforced labels" in faults


@pytest.mark.exhaustive
def test_interactive_gnmax_can_be_rehearsed() -> None:
    """Its student learns from earlier labels, and stricter budgets end the vote sooner."""
    study = rehearsal_with_table(holders=60, points=60)
    ends = []
    for epsilon in (40.0, 0.3):
        levels = {"HIGH": {"share": 0.5, "epsilon": epsilon}, "LOW": {"share": 0.5, "epsilon": 2 * epsilon}}
        fields = {**TABLE_RUN, "teachers": 20, "aggregator": INTERACTIVE, "batch_size": 10}
        run = run_finish(run_start(study, **fields, seed=3, rehearsed={"levels": levels, "method": "data_independent"}))
        assert (run.status, run.message) == (Run.Status.FINISHED, "")
        assert run.queries.filter(reinforced=True).count() == run.reinforced
        assert run.labels == run.queries.filter(reinforced=False, label__isnull=False).count() > 0
        assert all(each["spent"] <= each["epsilon"] for each in run.outcome["epsilons"])
        assert list(release_faults(run)) == []
        ends.append((run.position, run.reinforced > 0))
    assert ends[0] == (60, True) and ends[1][0] < 60


def test_vanishing_charges_everybody_for_the_queries_of_their_teacher() -> None:
    """The plan determines who takes part, so a withdrawal during the vote changes nobody's charge."""
    study = study_with_table(points=20, retain_votes=True)
    run = run_voting(study, variant="vanishing", aggregator=CHEAP, batch_size=6)
    vote_batch(run)
    holder = holder_of(study, "AVERAGE")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    run = run_finish(run)
    assert (run.status, run.position) == (Run.Status.FINISHED, 20)
    question, ballot, spent = vote_question(run), ballot_load(run.pk), balances(study)
    takes_part = public_participation(question.plan, 20, run.plan["participation"])
    due = 2 / question.plan.aggregator.parameters()["sigma"] ** 2 * takes_part.sum(axis=1)
    assert len(set(due.tolist())) > 1
    np.testing.assert_allclose(spent.of(ballot.members), due[ballot.teacher_of])
    assert account(holder) == pytest.approx(due[teachers_of(run, holder)[0]])
    largest = [due[question.plan.members(place)].max() for place in range(len(question.plan.groups))]
    assert run.spent == pytest.approx(largest)
    assert [*study_faults(study), *release_faults(run)] == []
    batch = run.batches.get(index=1)
    release = Release.objects.get(run=run.pk, batch=1)
    assert list(method_of(run).replay_faults(batch, release)) == []
    run.plan["participation"] = "another public text"
    run.save(update_fields=["plan"])
    assert "the released question differs" in "\n".join(release_faults(run))


def test_holders_of_a_small_group_are_copied_and_charged_for_all_their_teachers(silenced: list[list[int]]) -> None:
    study = study_with_table(levels="HHHHHHHAAAAAAAL", points=20, retain_votes=True)
    run = run_voting(study, small_groups="copy", aggregator=CHEAP, batch_size=10)
    vote_batch(run)
    holder = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    run = run_finish(run)
    low = run.plan["groups"][2]
    assert (low["host"], low["factor"], run.labels) == ("HIGH", 2, 20)
    assert silenced[1] == teachers_of(run, holder) and len(silenced[1]) == 2
    due = 20 * 2 * (2 * low["weight"]) ** 2 / CHEAP["sigma"] ** 2
    assert account(holder) == run.spent[2] == pytest.approx(due)
    assert [*study_faults(study), *release_faults(run)] == []
    for index in (0, 1):
        batch, release = run.batches.get(index=index), Release.objects.get(run=run.pk, batch=index)
        assert list(method_of(run).replay_faults(batch, release)) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"aggregator": {"name": "gnmax", "sigma": 0.5}}, "no query can be answered"),
        (
            {"aggregator": {"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 3.0, "threshold": 20.0}},
            "Even if all teachers agreed",
        ),
    ],
)
def test_a_plan_that_cannot_expect_a_label_is_refused(fields: dict[str, Any], said: str) -> None:
    for study in (study_with_table(), rehearsal_with_table()):
        with pytest.raises(PlanError, match=said):
            run_start(study, **TABLE_RUN | fields, variant="vanishing")


def test_residual_rehearsals_and_numbers_of_queries_that_are_not_whole_are_refused() -> None:
    rehearsal, study = rehearsal_with_table(), study_with_table()
    with pytest.raises(ValidationError, match="take part in every vote"):
        run_draft(study, **{**TABLE_RUN, "aggregator": RESIDUAL, "variant": "vanishing"})
    with pytest.raises(ValidationError, match="what residual votes cost"):
        run_draft(rehearsal, **{**TABLE_RUN, "aggregator": RESIDUAL})
    for name, value in (("first", 9), ("first", 10.5), ("disagreements", 0.5)):
        with pytest.raises(ValidationError, match=f"{name} must be a whole number"):
            run_draft(study, **{**TABLE_RUN, "aggregator": RESIDUAL | {name: value}})
