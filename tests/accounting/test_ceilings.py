"""The ceiling of a person over all studies that their account is linked to."""

import math
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.utils import timezone

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.ceilings import ceilings_left, largest_charge
from accounting.models import EndedReach, Release
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from accounting.verification import study_faults
from consent import services
from consent.models import ConsentForm, DataHolder, Study
from consent.promises.odds import right_guesses_at
from consent.promises.questions import KEYS
from ipate_web import environment
from tests.factories import consent_choose, user_create
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, attempt, batch_ask, commit, run_ask, vote_batch
from tests.training.runs import TABLE_RUN, run_finish, run_start, run_teach, study_with_table
from tests.training.test_concurrency import at_once
from tests.workers import wait_until
from training.methods import pate_teachers
from training.models import Run
from training.services.advance import run_advance
from training.services.drawings import check_answers_count, head_counts_draw
from training.services.erasures import records_expire

pytestmark = pytest.mark.django_db

#: Everybody's cap in the studies below: low protection, ε = 3.
CAP = float(caps_of(3.0, 1e-4))
#: Teachers, each of whom may use a whole share.
TEACHERS = TABLE_RUN | {"variant": Run.Variant.STANDARD, "aggregator": {"name": "gnmax", "sigma": 6.0}}
#: Votes, more than anybody can pay for.
LOUD = ASKING_RUN | {"choices": {"sigma": 2.0, "radius_share": 0.9}}


@pytest.fixture
def hanna() -> User:
    return user_create("hanna")


@pytest.fixture
def pair(db: None) -> tuple[Study, Study]:
    """Return two studies in which ``hanna`` is the first holder; nobody else has an account.

    Request it before ``hanna``.
    """
    return two_studies(), Study.objects.get(slug="two")


@built_once
def two_studies() -> Study:
    """Create both studies, and return the first."""
    one = study_with_table("one", levels="L", holders=6)
    services.holder_link(holder=first(one), user=user_create("hanna"))
    study_of(user_create("hanna"), "two")
    return one


def study_of(user: User, slug: str, levels: str = "L") -> Study:
    study = study_with_table(slug, levels=levels, holders=6)
    services.holder_link(holder=first(study), user=user)
    return study


def first(study: Study) -> DataHolder:
    return study.holders.earliest("pk")


def spent(study: Study, holder: DataHolder | None = None) -> float:
    return float(balances(study).of(np.array([(holder or first(study)).pk]))[0])


def others_spent(study: Study) -> list[float]:
    others = study.holders.exclude(user__isnull=False).values_list("pk", flat=True)
    return balances(study).of(np.array(sorted(others))).tolist()


def left(study: Study) -> float:
    """Return what ``hanna`` may still be charged in a study."""
    return float(ceilings_left(study, np.array([first(study).pk]))[0])


BEYOND = "These accounts are above their person's ceiling across all studies: 1 account."


def charge_beyond(study: Study, kind: str = Release.Kind.HEAD_COUNTS, charge: float = 0.5 * CAP) -> None:
    """Charge ``hanna`` without checking the ceiling."""
    subject = uuid4()
    share_grant(study=study, subject=subject, purpose="head counts", share=0.001, acting_user=None)
    with transaction.atomic():
        study = services.study_lock(study.pk)
        share_open(study=study, subject=subject)
        release_record(
            study=study,
            kind=kind,
            content={},
            holders=np.array([first(study).pk]),
            charges=np.array([charge]),
            limits=np.array([2 * CAP]),
            charge=charge,
        )
        share_settle(study=study, subject=subject, used=0.001)


@pytest.mark.parametrize("fields", [LOUD, pytest.param(SAMPLED_RUN, marks=pytest.mark.exhaustive)])
def test_all_studies_of_a_person_together_stay_within_the_ceiling(settings, pair, fields) -> None:
    settings.PERSON_CEILING = 1.3 * CAP
    for study in pair:
        assert run_ask(run_start(study, **fields)).status != Run.Status.FAILED
    one, two = pair
    assert 0.5 * CAP < spent(one) <= CAP, "otherwise the test shows nothing"
    assert spent(one) + spent(two) <= settings.PERSON_CEILING
    assert max(others_spent(two)) > 0.5 * CAP > spent(two), "people without an account are still asked"
    for study in pair:
        assert list(study_faults(study)) == []


@pytest.mark.parametrize(
    ("ceiling", "takes_part"), [pytest.param(2 * CAP, True, marks=pytest.mark.exhaustive), (1.5 * CAP, False)]
)
def test_holder_without_room_for_a_whole_share_joins_no_teacher(settings, pair, ceiling, takes_part) -> None:
    settings.PERSON_CEILING = ceiling
    for study in pair:
        run = run_finish(run_start(study, **TEACHERS))
        assert run.status == Run.Status.FINISHED and run.labels > 0
        assert min(others_spent(study)) > 0
    one, two = pair
    assert spent(one) > 0
    assert (spent(two) > 0) == takes_part
    assert spent(one) + spent(two) <= ceiling


def test_head_counts_are_charged_within_the_ceiling_and_a_charge_beyond_it_is_found(settings, pair) -> None:
    settings.PERSON_CEILING = CAP
    one, two = pair
    run_ask(run_start(one, **LOUD))
    head_counts_draw(study=two, acting_user=user_create("olga"))
    assert spent(two) == 0 < min(others_spent(two))
    charge_beyond(two)
    for study in pair:
        assert BEYOND in list(study_faults(study))


def vote_over_half_a_cap(study: Study) -> Run:
    """Return a teachers' vote in progress, whose eight labels will cost everybody half of their cap."""
    sigma = math.sqrt(2 * 8 / (0.5 * CAP)) * (1 + 1e-6)
    fields = TEACHERS | {"aggregator": {"name": "gnmax", "sigma": sigma}, "batch_size": 2}
    run = run_teach(run_start(study, share=0.5, **fields))
    assert pate_teachers.vote_open(run)
    return run


def check_answers_give(study: Study) -> None:
    """Let everybody answer all check questions, so that a count of answers charges them."""
    form = ConsentForm.objects.get(study=study)
    for holder in study.holders.all():
        for question in range(len(KEYS)):
            services.check_answer_keep(holder=holder, form=form, place=question, right=True)


@pytest.mark.parametrize("draw", [head_counts_draw, pytest.param(check_answers_count, marks=pytest.mark.exhaustive)])
def test_counts_drawn_during_a_vote_leave_room_for_the_rest_of_the_vote(settings, pair, draw) -> None:
    """The ceiling is not checked again before a vote of teachers ends."""
    one, two = pair
    with_ceiling = 0.5 * CAP * (1 + 1e-4)
    settings.PERSON_CEILING = with_ceiling + 0.25 * CAP
    run_ask(run_start(one, share=0.25, **LOUD))
    run = vote_over_half_a_cap(two)
    assert vote_batch(run)
    check_answers_give(two)
    draw(study=two, acting_user=user_create("olga"))
    while vote_batch(run):
        run.refresh_from_db()
    assert run.labels == 8 and 0.5 * CAP * (1 - 1e-4) < spent(two) <= with_ceiling
    assert min(others_spent(two)) > with_ceiling, "people without an account are counted too"
    for study in pair:
        assert list(study_faults(study)) == []


def test_a_charge_that_takes_the_room_of_a_vote_is_found_before_the_vote_ends(settings, pair) -> None:
    settings.PERSON_CEILING = 0.6 * CAP
    one, two = pair
    run = vote_over_half_a_cap(two)
    assert vote_batch(run)
    head_counts_draw(study=two, acting_user=user_create("olga"))
    assert list(study_faults(two)) == []
    charge_beyond(two, charge=0.2 * CAP)
    assert spent(one) + spent(two) < settings.PERSON_CEILING
    assert BEYOND in list(study_faults(two))


def test_room_under_the_ceiling_follows_from_links_and_public_numbers(settings, pair, hanna) -> None:
    """Otherwise a study would reveal who takes part in another, at which level, and what they were charged there."""
    settings.PERSON_CEILING = 1.2 * CAP
    one, two = pair
    form = ConsentForm.objects.get(study=one)
    assert left(two) == settings.PERSON_CEILING
    run = run_start(one, share=0.5, **LOUD)
    assert left(two) == settings.PERSON_CEILING, "nothing was opened"
    run_ask(run, batches=1)
    opened = settings.PERSON_CEILING - 0.5 * CAP
    assert left(two) == pytest.approx(opened)
    for change in (
        lambda: services.consent_give(holder=first(one), level="HIGH", form=form, acting_user=None),
        lambda: services.consent_withdraw(holder=first(one), acting_user=None),
        lambda: consent_choose(holder=first(one), level="LOW", form=form),
        lambda: services.consent_withdraw(holder=first(two), acting_user=None),
        lambda: batch_ask(run),
    ):
        change()
        assert left(two) == pytest.approx(opened)
    others = np.array([holder.pk for holder in two.holders.exclude(user=hanna)])
    assert ceilings_left(two, others).tolist() == [np.inf] * 5


def test_a_share_that_another_study_opens_counts_from_the_next_batch_on(settings, pair) -> None:
    settings.PERSON_CEILING = CAP
    one, two = pair
    run, other = run_start(one, share=0.5, **LOUD), uuid4()
    while not run.shards.exists():
        run_advance(run.pk)
    run.refresh_from_db()
    run = attempt(run)
    with transaction.atomic():
        share_grant(study=two, subject=other, purpose="run", share=1.0, acting_user=None)
        share_open(study=two, subject=other)
    commit(run)
    assert spent(one) == 0 < max(others_spent(one)), "charged from a batch that began earlier"


@pytest.mark.exhaustive
def test_linking_an_account_late_limits_further_charges(settings: Any, hanna: User) -> None:
    settings.PERSON_CEILING = 0.7 * CAP
    one, two = study_of(hanna, "one"), study_with_table("two", levels="L", holders=6)
    for study in (one, two):
        run_ask(run_start(study, share=0.6, **LOUD))
    before = [spent(one), spent(two)]
    assert sum(before) > settings.PERSON_CEILING, "they still counted as two people"
    services.holder_link(holder=first(two), user=hanna)
    for study in (one, two):
        run_ask(run_start(study, share=0.4, **LOUD))
        assert list(study_faults(study)) == [], "it was unknown at the time"
    assert [spent(one), spent(two)] == before


@pytest.mark.exhaustive
def test_charges_before_the_ceiling_count_and_are_not_faults(settings: Any, pair: tuple[Study, Study]) -> None:
    for study in pair:
        run_ask(run_start(study, share=0.7, **LOUD))
    before = [spent(study) for study in pair]
    settings.PERSON_CEILING = 0.5 * CAP
    for study in pair:
        run_ask(run_start(study, share=0.3, **LOUD))
        assert list(study_faults(study)) == []
    assert [spent(study) for study in pair] == before


@pytest.mark.exhaustive
def test_a_vote_that_was_under_way_when_the_ceiling_was_lowered_is_no_fault(settings, pair) -> None:
    """Nobody is silenced during a vote of teachers."""
    settings.PERSON_CEILING = 2 * CAP
    one, two = pair
    run_ask(run_start(one, **LOUD))
    run = run_teach(run_start(two, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 6.0}}))
    pate_teachers.vote_open(run)
    settings.PERSON_CEILING = 0.5 * CAP
    run.refresh_from_db()
    while vote_batch(run):
        run.refresh_from_db()
    assert spent(two) > 0 and spent(one) + spent(two) > settings.PERSON_CEILING
    assert list(study_faults(two)) == []
    charge_beyond(two, Release.Kind.LABELS)
    assert BEYOND in list(study_faults(two)), "a later vote is a fault"


@pytest.mark.parametrize("ceiling", [1.2 * CAP, None])
def test_an_ended_study_still_counts_where_there_is_a_ceiling(settings, pair, hanna, ceiling) -> None:
    settings.PERSON_CEILING = ceiling
    one, two = pair
    run_ask(run_start(one, **LOUD))
    reached = largest_charge(one)
    Study.objects.filter(pk=one.pk).update(retention_until=timezone.localdate() - timedelta(days=1))
    records_expire(study=one)
    assert not DataHolder.objects.filter(study=one, user=hanna).exists()
    kept = EndedReach.objects.values_list("mu_squared", flat=True)
    assert list(kept) == ([] if ceiling is None else [pytest.approx(reached)])
    assert left(two) == (np.inf if ceiling is None else pytest.approx(ceiling - reached))


@pytest.mark.both
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "kind", ["both", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("teachers", "every holder"))]
)
def test_two_studies_that_charge_at_once_do_not_exceed_the_ceiling_together(settings, pair, kind) -> None:
    settings.PERSON_CEILING = 1.1 * CAP
    fields = {"teachers": (TEACHERS, TEACHERS), "every holder": (LOUD, LOUD), "both": (TEACHERS, LOUD)}[kind]
    runs = [run_start(study, **own) for study, own in zip(pair, fields, strict=True)]
    runs = [run_teach(run) if run.method == Run.Method.PATE else run for run in runs]

    def finish(run: Run) -> None:
        if run.method == Run.Method.PATE:
            run_advance(run.pk)
        else:
            run_ask(run)

    assert at_once([lambda run=run: finish(run) for run in runs]) == [None, None]
    for run in runs:
        run_finish(run)
    assert sum(map(spent, pair)) <= settings.PERSON_CEILING * (1 + 1e-8)
    for study in pair:
        assert max(others_spent(study)) > 0.5 * CAP
        assert list(study_faults(study)) == []


def somebody_waits_for_us() -> bool:
    """Return whether another transaction waits for a lock that this one holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
        )
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.exhaustive
def test_opening_a_share_waits_for_another_study_checking_the_ceiling(settings: Any, pair: tuple[Study, Study]) -> None:
    """If two votes open at the same moment, the second must see the share of the first."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite allows one writing transaction at a time.")
    settings.PERSON_CEILING = 1.1 * CAP
    runs = [run_start(study, **TEACHERS) for study in pair]
    looked, opened = threading.Event(), threading.Event()
    genuine = pate_teachers.ceiling_limits

    def slow(study: Study, holders: np.ndarray, **of: Any) -> np.ndarray:
        found = genuine(study, holders, **of)
        if study.pk == pair[0].pk:
            looked.set()
            wait_until(lambda: opened.is_set() or somebody_waits_for_us())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pate_teachers, "ceiling_limits", slow)

        def second() -> None:
            looked.wait(60)
            run_advance(runs[1].pk)
            opened.set()

        outcomes = at_once([lambda: run_advance(runs[0].pk), second])
    assert not any(isinstance(each, Exception) for each in outcomes), outcomes
    for run in runs:
        run_finish(run)
    assert sum(map(spent, pair)) <= settings.PERSON_CEILING * (1 + 1e-8)
    assert sum(spent(study) > 0 for study in pair) == 1


def test_a_ceiling_is_on_by_default_and_is_a_number_above_0_or_none(settings, monkeypatch) -> None:
    assert settings.PERSON_CEILING == 1.8
    assert right_guesses_at(math.sqrt(1.8)) == 75
    for given in ("none", "0", "-1", "inf", "nan", "high"):
        monkeypatch.setenv("IPATE_PERSON_CEILING", given)
        if given == "none":
            assert environment.read("IPATE_PERSON_CEILING", environment.POSITIVE_OR_NONE, default=1.8) is None
            continue
        with pytest.raises(ImproperlyConfigured, match="should be a number above 0, or none"):
            environment.read("IPATE_PERSON_CEILING", environment.POSITIVE_OR_NONE, default=None)


def test_the_default_ceiling_admits_three_studies_with_ordinary_promises(hanna: User) -> None:
    """The two other studies have opened all of ε = 3."""
    cap = float(caps_of(3.0, 1e-5))
    for slug in ("one", "two", "three"):
        study = study_with_table(slug, levels="L", holders=6, delta=1e-5)
        services.holder_link(holder=first(study), user=hanna)
        before = left(study)
        assert before > cap
        subject = uuid4()
        share_grant(study=study, subject=subject, purpose="run", share=1.0, acting_user=user_create("olga"))
        share_open(study=study, subject=subject)
    assert before == pytest.approx(1.8 - 2 * cap)
