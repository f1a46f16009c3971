"""A new form without whose answer a consent does not count: whoever has not answered is as one who withdrew."""

from datetime import timedelta

import numpy as np
import pytest
from django.utils import timezone

from accounting.book import balances
from consent.models import Study
from consent.selectors import consent_current
from consent.services import consent_give
from consent.services.handover import circumstance_record
from tests.factories import form_publish
from tests.training.asking import vote_batch
from tests.training.runs import TABLE_RUN, run_finish, run_start, run_teach, study_with_table
from training.methods.pate.ballot import ballot_load
from training.methods.pate.opening import vote_open
from training.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def ask_again(study, renewal: str, silent: int) -> list:
    """Publish a new form that all but the first ``silent`` holders answer as they did before. Returns those."""
    form = form_publish(study, {"en": "We ask for more."}, renewal=renewal)
    holders = list(study.holders.order_by("pk"))
    for holder in holders[silent:]:
        consent_give(holder=holder, level=consent_current(holder).level, form=form, acting_user=None)
    return holders[:silent]


def test_a_withdrawal_before_the_vote_costs_nothing() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    silent = ask_again(study, "required", 20)
    run = run_finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    assert not np.isin([holder.pk for holder in silent], ballot_load(run.pk).holder).any()
    charged = balances(study)
    assert not np.isin([holder.pk for holder in silent], charged.holders).any()
    assert len(charged.holders) == 10


def test_nobody_is_taken_out_while_the_old_consent_stands() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    ask_again(study, "asked", 20)
    run_finish(run)
    assert len(balances(study).holders) == 30


def run_with_a_batch(study: Study) -> Run:
    run = run_teach(run_start(study, **{**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 100.0}}))
    vote_open(run)
    vote_batch(run)
    return run


def test_during_the_vote_their_teachers_fall_silent(silenced: list[list[int]]) -> None:
    study = study_with_table(points=40)
    run = run_with_a_batch(study)
    (silent,) = ask_again(study, "required", 1)
    vote_batch(run)
    ballot = ballot_load(run.pk)
    teachers = np.unique(ballot.teacher[ballot.holder == silent.pk]).tolist()
    assert silenced == [[], teachers]


@pytest.mark.parametrize("kind", ["died", "guardian"])
def test_during_the_vote_a_death_or_a_guardian_silences_as_a_withdrawal_does(
    silenced: list[list[int]], kind: str
) -> None:
    study = study_with_table(points=40)
    run = run_with_a_batch(study)
    who = study.holders.order_by("pk").first()
    until = timezone.now().date() + timedelta(days=900) if kind == "guardian" else None
    circumstance_record(
        study=study, pseudonym=who.pseudonym, kind=kind, until=until, reason="Register.", acting_user=None
    )
    vote_batch(run)
    ballot = ballot_load(run.pk)
    assert silenced == [[], np.unique(ballot.teacher[ballot.holder == who.pk]).tolist()]


def test_holder_who_dies_before_the_vote_is_taken_out_and_charged_nothing() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    who = study.holders.order_by("pk").first()
    circumstance_record(study=study, pseudonym=who.pseudonym, kind="died", reason="Register.", acting_user=None)
    run = run_finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    assert who.pk not in ballot_load(run.pk).holder
    assert sorted(balances(study).holders) == [each.pk for each in study.holders.order_by("pk")[1:]]
