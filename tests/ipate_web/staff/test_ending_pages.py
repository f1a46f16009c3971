"""Pages that end things for good: a person's records, a dataset, a study."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from consent import services
from consent.models import ConsentForm, DataHolder, Disposal, Role, Study
from tests.factories import user_create
from tests.pages import as_, run_form_filled
from tests.snapshots import built_once
from tests.training.runs import rehearsal_with_table, study_with_table
from training.engine.records import owners_of
from training.models import Dataset
from training.services.closing import study_close
from training.services.erasures import records_erase

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_table(holders=6)
    for name in ("steward", "auditor"):
        services.membership_add(study=study, user=user_create(name), role=Role(name), acting_user=None)
    return study


def url(name: str, *arguments: object) -> str:
    return reverse(f"staff:{name}", args=["table", *arguments])


def test_a_steward_erases_records_of_a_nonparticipant(study: Study) -> None:
    steward, holder = as_("steward"), DataHolder.objects.get(study=study, pseudonym="p-001")
    sent = {"pseudonym": "p-001", "reason": "Her letter of 3 March."}
    assert "Withdraw first" in steward.post(url("disposals"), sent).text
    services.consent_withdraw(holder=holder, acting_user=None, keep=True)
    assert "Nobody in this study" in steward.post(url("disposals"), sent | {"pseudonym": "p-9"}).text
    assert as_("auditor").post(url("disposals"), sent).status_code == 403
    assert steward.post(url("disposals"), sent).status_code == 302
    records_erase(study.pk)
    assert holder.pk not in owners_of(Dataset.objects.get(study=study, kind="private"))
    page = as_("auditor").get(url("disposals")).text
    assert "Her letter of 3 March." in page and "steward" in page and "p-001" not in page
    assert 'name="pseudonym"' not in page
    assert "Nobody in this study" not in steward.post(url("disposals"), sent).text, "the pseudonym still leads to them"


def test_a_dataset_is_removed_with_a_reason(study: Study) -> None:
    steward, dataset = as_("steward"), Dataset.objects.get(study=study, kind="private")
    page = url("dataset_remove", dataset.pk)
    assert page in steward.get(url("dataset", dataset.pk)).text
    assert page not in as_("auditor").get(url("dataset", dataset.pk)).text
    assert steward.post(page, {"reason": ""}).status_code == 422
    assert steward.post(page, {"reason": "Wrong file."}).status_code == 302
    html = steward.get(url("dataset", dataset.pk)).text
    assert "its rows are deleted" in html and page not in html
    assert steward.get(page).status_code == 404
    assert "removed" in steward.get(url("datasets")).text


def test_a_study_is_closed_once_with_a_last_day(study: Study) -> None:
    olga = as_("olga")
    assert "cannot be opened again" in olga.get(url("study_close")).text
    assert olga.post(url("study_close"), {"reason": "Done."}).status_code == 422
    last = timezone.localdate() + timedelta(days=9)
    assert olga.post(url("study_close"), {"reason": "Done.", "erase_after": last.isoformat()}).status_code == 302
    page = olga.get(url("study")).text
    assert "was closed on" in page and url("study_close") not in page
    assert olga.get(url("study_close")).status_code == 302
    (row,) = Disposal.objects.filter(study=study)
    assert (row.kind, row.reason, row.recorded_by.username) == ("closed", "Done.", "olga")
    form = ConsentForm.objects.get(study=study)
    assert olga.post(url("consent_form_publish"), {"seen": form.digest}).status_code == 302


def test_pages_of_a_closed_study_say_so_and_offer_nothing_that_is_refused(study: Study) -> None:
    services.membership_add(study=study, user=user_create("carla"), role=Role.CHAIR, acting_user=None)
    olga, sent = as_("olga"), run_form_filled(study, title="Typed at length")
    offers = {
        ("olga", "runs"): "run_new",
        ("olga", "consent_forms"): "consent_form_new",
        ("olga", "study"): "head_counts",
        ("steward", "invitations"): "invitations_everyone",
        ("carla", "policies"): "policy_new",
    }
    services.holders_register(study=study, pseudonyms=["P-9"])
    assert all(f'href="{url(offer)}' in as_(who).get(url(name)).text for (who, name), offer in offers.items())
    study_close(study=study, reason="Done.", acting_user=user_create("olga"), erase_after=timezone.localdate())
    for (who, name), offer in offers.items():
        page = as_(who).get(url(name)).text
        assert page.count("was closed on") == 1 and f'href="{url(offer)}' not in page
    page = olga.post(url("run_new"), sent | {"confirmed": "1"})
    assert page.status_code == 422 and "it asks nobody, stores nothing new" in page.text
    assert 'value="Typed at length"' in page.text and not study.runs.exists()


def test_rehearsal_has_no_last_day(study: Study) -> None:
    rehearsal_with_table()
    page = reverse("staff:study_close", args=["rehearsal"])
    assert "erase_after" not in as_("olga").get(page).text
    assert as_("olga").post(page, {"reason": "Done."}).status_code == 302
    assert Study.objects.get(slug="rehearsal").is_closed
