"""What was learned, as a holder finds it: from their choice, with what it cost them, and on to change or leave."""

import pytest
from django.urls import reverse

from consent import services
from consent.models import DataHolder
from tests import factories
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.services.students import student_withdraw

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

RUN = {**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 40.0}, "wanted_labels": 4, "share": 0.4}


@pytest.fixture
def holder() -> DataHolder:
    """Hanna takes part in a study that has published two results, of which one was withdrawn."""
    study = study_with_table(title="Reading digits")
    first = run_finish(run_start(study, title="Who smokes", purpose="To help people stop.", **RUN))
    run_finish(run_start(study, title="Who drinks", purpose="To advise them in time.", **RUN))
    student_withdraw(run=first, version=1, reason="It misreads ages.", acting_user=factories.user_create("olga"))
    holder = DataHolder.objects.filter(study=study, consent_events__level="LOW").earliest("pk")
    services.holder_link(holder=holder, user=factories.user_create("hanna"))
    return holder


def test_results_are_linked_from_the_choice_and_lead_to_change_or_leave(visit, holder: DataHolder) -> None:
    site, slug = visit("phone"), holder.study.slug
    site.sign_in("hanna")
    site.open(reverse("consent:choice", args=[slug]))
    site.press("See what was learned")
    site.says("Who drinks")
    site.says("It was withdrawn on")
    site.says("times in 100 before it")
    site.is_in_order()
    site.press("Withdraw")
    site.says("You are no longer told what the study learns")
