"""What an account was opened with is chained: nobody's spending is erased, moved to another, or settled unseen."""

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import F, QuerySet
from django.utils import timezone

from accounting.models import AccountRecord, HolderSpending, PrivacyGroup, RunAccount, SpendingHistory
from accounting.verification import study_faults
from consent import services
from consent.models import ChainHead, ConsentForm, Study
from ipate_web.append_only import triggers_remove
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.services.lifecycle import run_cancel

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    """One run has voted, a second one waits with a reservation; one holder owns no records."""
    study = study_with_table()
    services.holders_register(study=study, pseudonyms=["nobody's"])
    form = ConsentForm.objects.get(study=study)
    services.consent_give(holder=study.holders.latest("pk"), level="LOW", form=form, acting_user=None)
    run_finish(run_start(study, share=0.5, **TABLE_RUN))
    run_start(study, share=0.5, **TABLE_RUN)
    assert list(study_faults(study)) == []
    return study


def groups(study: Study, *, reserved: bool = False) -> QuerySet[PrivacyGroup]:
    return PrivacyGroup.objects.filter(account__study=study, account__is_reservation=reserved)


def spending_erase(study: Study) -> None:
    """Of one holder, who would come into the next run as if nothing had been."""
    spending = HolderSpending.objects.filter(holder__study=study).earliest("pk")
    path, node = [], spending.history
    while node:
        path.append(node.group_id)
        node = node.parent
    spending.delete()
    PrivacyGroup.objects.filter(pk__in=path).update(holders=F("holders") - 1)


def spendings_erase(study: Study) -> None:
    HolderSpending.objects.all().delete()
    for node in SpendingHistory.objects.order_by("-pk"):
        node.delete()
    PrivacyGroup.objects.update(holders=0)


def holders_swap(study: Study) -> None:
    """Two who chose alike, one of whom was in no run: nothing but the seal knows which of them."""
    low = study.holders.filter(consent_events__level="LOW")
    HolderSpending.objects.filter(holder=low.earliest("pk")).update(holder=low.latest("pk"))


FORGERIES: list[tuple[Callable[[Study], object], str]] = [
    (spending_erase, "is not what was opened"),
    (spendings_erase, "is not what was opened"),
    (holders_swap, "is not what was opened"),
    (lambda study: groups(study).update(allowance=9.0), "is not what was opened"),
    (lambda study: groups(study).filter(index=0).update(name="LOW"), "is not what was opened"),
    (lambda study: groups(study, reserved=True).update(reserved_rdp=[0.0] * 102), "is not what was opened"),
    (lambda study: groups(study).update(index=F("index") + 10), "is not what was opened"),
    (lambda study: study.accounts.update(conversion="classic"), "is not kept as it was opened"),
    (lambda study: study.accounts.update(orders=[2.0] * 102), "is not kept as it was opened"),
    (lambda study: study.accounts.update(opened_at=F("opened_at") + timedelta(days=1)), "not kept as it was opened"),
    (lambda study: study.accounts.update(settled_at=None), "when its account was settled"),
    (lambda study: study.accounts.update(settled_at=timezone.now()), "when its account was settled"),
    (lambda study: study.accounts.update(simulation=True), "its account was settled, but is gone"),
]


@pytest.mark.parametrize(("forge", "fault"), FORGERIES, ids=range(len(FORGERIES)))
def test_an_account_that_was_edited_is_found(study: Study, forge: Callable[[Study], object], fault: str) -> None:
    forge(study)
    assert any(fault in line for line in study_faults(study)), list(study_faults(study))


def test_an_account_that_nothing_opened_is_found(study: Study) -> None:
    RunAccount.objects.filter(is_reservation=True).update(run="00000000-0000-0000-0000-000000000001")
    faults = list(study_faults(study))
    assert "run 00000000-0000-0000-0000-000000000001: nothing says that its account was opened." in faults
    assert any("its account was reserved, but is gone." in fault for fault in faults)


def test_the_life_of_an_account_is_recorded() -> None:
    study = study_with_table()
    finished = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    cancelled = run_cancel(run=run_start(study, **TABLE_RUN), acting_user=user_create("olga"))
    run_finish(run_start(study, **TABLE_RUN, simulation=True))
    records = [(record.run, record.kind) for record in AccountRecord.chain(study.pk)]
    assert records == [
        *((finished.pk, kind) for kind in ("reserved", "opened", "settled")),
        *((cancelled.pk, kind) for kind in ("reserved", "released")),
    ]
    assert list(study_faults(study)) == []


def test_accounts_from_before_are_sealed_by_the_migration_as_they_stand(study: Study) -> None:
    triggers_remove(connection)
    QuerySet(AccountRecord).all()._raw_delete("default")
    ChainHead.objects.filter(chain="accounting.accountrecord").delete()
    import_module("accounting.migrations.0008_account_records").seal(apps, None)
    assert [record.kind for record in AccountRecord.chain(study.pk)] == ["opened", "settled", "reserved"]
    assert list(study_faults(study)) == []
