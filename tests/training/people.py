"""A dozen holders with table records, and the decisions that they make during a run."""

from typing import Any

from consent import services as consent_services
from consent.models import ConsentForm, DataHolder, Study
from tests.factories import consent_choose
from tests.training.runs import study_with_table

HOLDERS = 12


def small_study(**fields: Any) -> Study:
    """Return a study of :data:`HOLDERS` people that stores what was asked, so that it can be replayed."""
    return study_with_table(**{"holders": HOLDERS, "retain_votes": True, **fields})


def everybody(study: Study) -> list[DataHolder]:
    """Return all holders of a study, in the order in which they were added."""
    return list(DataHolder.objects.filter(study=study).order_by("pk"))


def decide(who: DataHolder, level: str) -> None:
    """Choose a level on the newest form."""
    form = ConsentForm.objects.filter(study=who.study).latest("version")
    consent_choose(holder=who, level=level, form=form)


def withdraw(who: DataHolder) -> None:
    """Withdraw the consent."""
    consent_services.consent_withdraw(holder=who, acting_user=None)
