"""Restoring real backups: promises and charges remain valid, even if the database has forgotten them.

Random histories of several studies are in :mod:`tests.accounting.test_installation_histories`.
"""

from collections import Counter
from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounting.caps import caps_of
from accounting.ceilings import ceilings_left
from accounting.models import Release
from accounting.restores import missing_rows
from accounting.shares import share_free, share_grant, share_open
from accounting.verification import study_faults
from common.journal import acts_forget
from consent.models import ConsentEvent, Level, Role, Study
from consent.people.circumstances import Lapse
from consent.promises.status import holder_status
from consent.selectors import answerer_faults, consent_snapshot, promise_faults, promise_last
from consent.services import consent_refuse, holder_link, membership_add
from consent.services.erasures import holders_waiting
from consent.services.replays import acts_lost
from ipate_web.backups.files import NAME as KEYS
from tests.accounting.charging import share_charge
from tests.factories import decide, form_publish, holder_create, policy_approve, study_open, user_create

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages_apart")]


def backup(folder: Path) -> Path:
    call_command("backup", str(folder), "--unencrypted", stdout=StringIO())
    (made,) = set(folder.iterdir()) - {folder / KEYS}
    return made


def restore(made: Path) -> None:
    call_command("restore", str(made), "--yes", "--replace", stdout=StringIO())


def settle(study: Study, *options: str) -> None:
    unknown = len(acts_lost(study).unrecordable)
    call_command("settle_restore", study.slug, "--user", "olga", "--give-up", str(unknown), *options, stdout=StringIO())


@pytest.mark.exhaustive
def test_promises_hold_after_the_journal_lost_decisions(tmp_path: Path) -> None:
    """After the backup, people consent for the first time or raise their level, and no record of this remains."""
    study, spent = study_open("drill"), Counter[str]()
    for number in range(3):
        decide(holder_create(study, f"P-{number}"), Level.HIGH)
    made = backup(tmp_path)
    holder_create(study, "P-3")
    for holder in study.holders.all():
        decide(holder, Level.LOW)
    for share in (0.1, 0.2, 0.2):
        spent.update(share_charge(study, share))
    acts_forget(study.pk, timedelta(0))
    restore(made)
    settle(study, "--decisions-entered")
    assert list(study_faults(study)) == []
    assert Release.objects.get(kind=Release.Kind.GAP).recorded_by == user_create("olga")
    holder_create(study, "P-3")
    for holder, level in zip(study.holders.order_by("pk"), [Level.LOW, Level.LOW, Level.HIGH, Level.LOW], strict=True):
        decide(holder, level)
    while (free := share_free(study)) >= 0.01:
        spent.update(share_charge(study, min(0.2, free)))
    assert list(study_faults(study)) == []
    assert len(spent) == 4 and min(spent.values()) > 0
    assert max(spent.values()) <= float(caps_of(3.0, study.delta)) * (1 + 1e-9)


@pytest.mark.exhaustive
def test_a_backup_discarded_by_an_earlier_restore_is_named(tmp_path: Path) -> None:
    study, spent = study_open("drill"), 0.0
    decide(holder_create(study, "P-1"), Level.HIGH)
    before = backup(tmp_path / "before")
    for _run in range(3):
        spent += sum(share_charge(study, 0.1).values())
    given_up = backup(tmp_path / "given up")
    restore(before)
    settle(study, "--share", "0.3")
    restore(given_up)
    with pytest.raises(CommandError, match="Or an earlier restore went back to a time"):
        settle(study)
    settle(study, "--decisions-entered")
    assert list(study_faults(study)) == [] and share_free(study) < 1e-6 < spent


def test_a_withdrawal_counts_though_the_form_that_was_read_is_lost(tmp_path: Path) -> None:
    study = study_open("drill")
    leaves, stays = (holder_create(study, name) for name in ("P-1", "P-2"))
    for holder in (leaves, stays):
        decide(holder, Level.AVERAGE)
    made = backup(tmp_path)
    consent_refuse(holder=leaves, form=form_publish(study, {"en": "In other words."}), acting_user=None)
    lost = study_open("lost")
    restore(made)
    settle(study)
    assert consent_snapshot(study).holders.tolist() == [stays.pk]
    assert holders_waiting(study) == {leaves.pk}
    assert list(ConsentEvent.chain_faults(study.pk)) == []
    new = study_open("later")
    assert new.pk not in (study.pk, lost.pk) and missing_rows(new) == {}, "not a study missing from the backup"
    assert list(study_faults(new)) == []


@pytest.mark.exhaustive
def test_a_consent_ends_if_a_stricter_one_cannot_be_recorded(tmp_path: Path) -> None:
    """Its policy was lost. A decision made after the restore is kept."""
    study = study_open("drill")
    holder, other = (holder_create(study, name) for name in ("P-1", "P-2"))
    for each in (holder, other):
        decide(each, Level.LOW)
    policy_approve(study, 0.5, 1.5, 2.5)
    made = backup(tmp_path)
    policy_approve(study, 0.4, 1.4, 2.4)
    for each in (holder, other):
        decide(each, Level.HIGH)
    restore(made)
    decide(other, Level.AVERAGE)
    file = tmp_path / "unrecordable.csv"
    with pytest.raises(CommandError, match="not a data steward"):
        call_command("settle_restore", study.slug, "--user", user_create("nina").username, "--list", str(file))
    membership_add(study=study, user=user_create("sam"), role=Role.STEWARD, acting_user=None)
    call_command("settle_restore", study.slug, "--user", "sam", "--list", str(file), stdout=StringIO())
    today = f"{timezone.now():%Y-%m-%d}"
    assert file.read_text().split() == ["pseudonym,kind,day", *(f"P-{n},decision,{today}" for n in (1, 2))]
    settle(study)
    snapshot = consent_snapshot(study)
    assert (snapshot.holders.tolist(), snapshot.epsilons.tolist()) == ([other.pk], [1.5])
    assert list(study_faults(study)) == list(promise_faults(study)) == list(answerer_faults(study)) == []
    state = holder_status(holder)
    assert state.lapse == Lapse.EXPIRED and state.needs_decision, "the person is asked again"
    promise = promise_last(holder)
    assert promise is not None and promise.epsilon == 2.5


@pytest.mark.exhaustive
def test_a_policy_missing_from_a_backup_counts_for_the_ceiling_permanently(tmp_path, settings) -> None:
    """The person's charges under it must fit, even if the study is locked or has had another policy since."""
    one, two = study_open("one"), study_open("two")
    caps = {epsilon: float(caps_of(epsilon, one.delta)) for epsilon in (3.0, 6.0)}
    settings.PERSON_CEILING = caps[6.0] + caps[3.0] / 2
    here = holder_create(two, "P-1")
    for holder in (holder_create(one, "P-1"), here):
        holder_link(holder=holder, user=user_create("hanna"))

    def left() -> float:
        return float(ceilings_left(two, np.array([here.pk]))[0])

    made = backup(tmp_path / "backups")
    policy_approve(one, 1.0, 2.0, 6.0)
    share_grant(study=one, subject=(subject := uuid4()), purpose="run", share=1.0, acting_user=None)
    share_open(study=one, subject=subject)
    truth = left()
    assert truth == pytest.approx(caps[3.0] / 2)
    restore(made)
    assert left() == pytest.approx(truth)
    policy_approve(one, 0.5, 1.0, 2.0)
    assert left() == pytest.approx(truth)
    settle(one)
    assert left() == pytest.approx(truth)
