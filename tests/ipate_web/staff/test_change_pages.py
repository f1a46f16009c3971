"""The page of the changes of a study: values before and after, filters, and what is sealed to auditors alone."""

import json

import pytest
from django.db import connection
from django.urls import reverse

from common.append_only import triggers_remove
from consent import services
from consent.models import ConfigurationChange, DataHolder, Role, Study
from consent.services.invitations import invitations_create
from tests.factories import user_create
from tests.pages import as_
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from training.models import Dataset
from training.services.datasets import dataset_provenance_state

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_table()
    for name, role in (("aud", Role.AUDITOR), ("carla", Role.COMMITTEE)):
        services.membership_add(study=study, user=user_create(name), role=role, acting_user=None)
    services.study_update(study=study, acting_user=user_create("olga"), title="Another title")
    public = Dataset.objects.get(study=study, kind="public")
    dataset_provenance_state(dataset=public, provenance="From a drawer.", acting_user=user_create("otto"))
    run_draft(study, **TABLE_RUN)
    holder = DataHolder.objects.filter(study=study).earliest("pk")
    services.holder_link(holder=holder, user=user_create("hanna"))
    invitations_create(study=study, acting_user=user_create("sara"), pseudonyms=["secret-name"])
    return study


def page_of(study: Study, name: str, query: str = "") -> str:
    return as_(user_create(name)).get(reverse("staff:changes", args=[study.slug]) + query).text


@pytest.mark.slow
def test_old_and_new_values_stand_side_by_side_with_who_changed_them(study: Study) -> None:
    page = page_of(study, "carla")
    assert '<th scope="row">Title</th><td class="words">Study table</td><td class="words">Another title</td>' in page
    assert "From a drawer." in page
    assert "by olga" in page and "by otto" in page
    assert "Private dataset" in page, "fields have names"


def test_the_list_can_be_narrowed(study: Study) -> None:
    assert "From a drawer." not in page_of(study, "carla", "?model=consent.study")
    assert "Study table" not in page_of(study, "carla", "?by=otto&model=training.dataset")
    assert "From a drawer." in page_of(study, "carla", "?by=otto&model=training.dataset")
    assert "No such changes" in page_of(study, "carla", "?until=2001-01-01")
    assert "Study table" in page_of(study, "carla", "?since=never&by=nobody")


@pytest.mark.slow
def test_there_are_pages(study: Study) -> None:
    for number in range(25):
        services.study_update(study=study, acting_user=user_create("olga"), title=f"Title {number}")
    assert "Title 24" in page_of(study, "aud") and "Study table" not in page_of(study, "aud")
    assert "Study table" in page_of(study, "aud", "?page=2")


def test_sealed_changes_are_for_auditors_and_name_nobody(study: Study) -> None:
    page = page_of(study, "aud", "?record=sealed")
    assert "Sealed changes, newest first" in page and "Linked at" in page and "Code" in page
    holder = DataHolder.objects.get(study=study, user__username="hanna")
    for message in ("hanna", "secret-name", holder.pseudonym):
        assert message not in page
    open_to_her = page_of(study, "carla", "?record=sealed")
    assert "Sealed changes" not in open_to_her and "Linked at" not in open_to_her


def test_the_page_is_there_after_the_record_was_tampered_with(study: Study) -> None:
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE consent_configurationchange SET row = 'x' WHERE model = 'training.run'")
        cursor.execute("UPDATE consent_configurationchange SET model = 'no.such' WHERE model = 'training.dataset'")
        cursor.execute(
            "UPDATE consent_configurationchange SET after = %s WHERE model = 'consent.study'",
            [json.dumps({"no_such": 1})],
        )
    assert "No_such" in page_of(study, "aud")


def test_auditors_take_the_open_changes_along(study: Study) -> None:
    response = as_(user_create("aud")).get(reverse("staff:consents_export", args=[study.slug, "json"]))
    exported = json.loads(b"".join(response.streaming_content))  # type: ignore[attr-defined]
    assert [row["hash"] for row in exported["changes"]] == list(
        ConfigurationChange.chain(study.pk).values_list("hash", flat=True)
    )
