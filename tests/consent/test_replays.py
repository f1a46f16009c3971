"""Circumstances that a restored database has forgotten are recorded again, and decide who could consent."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.db import transaction

from consent import selectors, services
from consent.circumstances import answering_for
from consent.models import Circumstance, ConsentEvent, DataHolder, Invitation, Study
from consent.selectors import answerer_faults
from consent.services.handover import hand_overs
from consent.services.invitations import invitations_create
from consent.services.replays import Lost, acts_apply
from tests.clock import Clock
from tests.consent.conftest import Decide, circumstance

pytestmark = pytest.mark.usefixtures("clock")


def record(holder: DataHolder, kind: str, until: date | None = None) -> Circumstance:
    return circumstance(holder.study, kind, until, holder.pseudonym)


def forgotten(study: Study, *acts: Callable[[], Any]) -> Lost:
    """What ``acts`` record, on a database that has forgotten it after them."""
    rows: dict[type[Any], list[Any]] = {}
    with transaction.atomic():
        for act in acts:
            act()
        for model in (Circumstance, ConsentEvent):
            rows[model] = [model.from_act(row.as_act()) for row in model.chain(study.pk)]
        transaction.set_rollback(True)
    return Lost(rows)


def takes_part(holder: DataHolder) -> bool:
    return holder.pk in selectors.consent_snapshot(holder.study).holders


@pytest.mark.parametrize("kind", ["guardian", "proxy", "incapable", "died"])
def test_no_consent_counts_that_was_given_by_the_link_of_a_person_who_answered_no_longer(
    study: Study, holder: DataHolder, give: Decide, clock: Clock, kind: str
) -> None:
    """The restored database knows neither the guardian nor that the person's own link has ended."""
    lost = forgotten(study, lambda: record(holder, kind))
    give(holder, "LOW")
    assert takes_part(holder)
    acts_apply(study, lost)
    assert not takes_part(holder)
    assert holder.pk in selectors.lapses_at(study, clock.now())
    assert list(answerer_faults(study)) == [], "nobody knew when it was given, and it does not count"
    ConsentEvent.append([ConsentEvent.from_act(ConsentEvent.objects.get().as_act() | {"recorded_at": clock.now()})])
    assert len(list(answerer_faults(study))) == 1, "of whoever decides so now somebody knows"


def test_a_guardian_entered_anew_does_not_make_the_decisions_of_the_first_faults(
    study: Study, holder: DataHolder, give: Decide
) -> None:
    """A steward has seen who answers, and invited them, before the restore was settled."""
    lost = forgotten(study, lambda: record(holder, "guardian"), lambda: give(holder, "LOW"))
    record(holder, "guardian", date(2030, 1, 2))
    invitations_create(study=study, acting_user=None, pseudonyms=[holder.pseudonym])
    acts_apply(study, lost)
    assert list(answerer_faults(study)) == []
    assert answering_for(holder).until == date(2030, 1, 2)
    assert Invitation.objects.filter(holder=holder, revoked_at=None).exists(), "who answers keeps their new link"
    assert takes_part(holder)
    assert list(Circumstance.chain_faults(study.pk)) == []


def test_a_guardian_until_a_later_day_answers_though_the_earlier_day_came(
    study: Study, holder: DataHolder, give: Decide, clock: Clock
) -> None:
    """Before the restore a steward had recorded that the guardian answers for longer."""
    record(holder, "guardian", date(2026, 2, 1))
    later = forgotten(study, lambda: record(holder, "guardian", date(2027, 2, 1)))
    later.rows[Circumstance] = later.rows[Circumstance][1:]
    clock.moment = datetime(2026, 2, 2, tzinfo=UTC)
    hand_overs()
    assert not answering_for(holder).represents
    acts_apply(study, later)
    assert answering_for(holder).until == date(2027, 2, 1)


def test_what_was_recorded_since_stands_after_what_was_lost(study: Study, holder: DataHolder, give: Decide) -> None:
    lost = forgotten(study, lambda: record(holder, "proxy"))
    record(holder, "died")
    acts_apply(study, lost)
    assert answering_for(holder).kind == "died"
    services.consent_refuse(holder=holder, acting_user=None)
    assert list(answerer_faults(study)) == []
