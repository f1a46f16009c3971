"""A dozen holders with table records, and the decisions that they make during a run."""

from typing import Any

from consent import services as consent_services
from consent.models import DataHolder, Study
from tests.training.runs import study_with_table

HOLDERS = 12


def small_study(**fields: Any) -> Study:
    """Return a study of :data:`HOLDERS` people that stores what was asked, so that it can be replayed."""
    return study_with_table(**{"holders": HOLDERS, "retain_votes": True, **fields})


def everybody(study: Study) -> list[DataHolder]:
    """Return all holders of a study, in the order in which they were added."""
    return list(DataHolder.objects.filter(study=study).order_by("pk"))


def withdraw(who: DataHolder) -> None:
    """Withdraw the consent."""
    consent_services.consent_withdraw(holder=who, acting_user=None)
