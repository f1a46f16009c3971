"""The release register: its rows, who downloaded something, and that the page survives tampering."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.urls import reverse

from accounting.models import Release
from accounting.verification import study_faults
from common.append_only import chained_models, triggers_install, triggers_remove
from consent import services
from consent.models import ConsentEvent, DataHolder, Role, Study
from consent.permissions import PUBLIC_CHAINS
from consent.services.holders import circumstance_record
from ipate_web.staff import ledger
from tests import factories
from tests.pages import as_, downloads, roles_fill, text
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db

#: All of its twelve points can be answered with a third of every cap.
RUN = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}


@pytest.fixture
@built_once
def run() -> Run:
    """Return a run whose study has five releases: head counts, three batches of labels, a model."""
    run = run_finish(run_start(study_with_table(), share=0.5, **RUN))
    factories.members_add(run.study, auditor="auditor", researcher="researcher")
    return run


@pytest.fixture
def forged(run: Run) -> Any:
    """Return ``forged(model, column, value, where)``, which writes values that the site would never write."""
    triggers_remove(connection)

    def forge(model: type, column: str, value: object, where: str = "sequence = 4") -> None:
        table = model._meta.db_table  # type: ignore[attr-defined]
        with connection.cursor() as cursor:
            cursor.execute(f'UPDATE {table} SET "{column}" = %s WHERE {where}', [value])

    yield forge
    triggers_install(connection)


def url(name: str, study: Study, *args: object, **query: object) -> str:
    return reverse(f"staff:{name}", args=[study.slug, *args]) + (f"?{urlencode(query)}" if query else "")


def test_the_register_lists_all_releases_newest_first(run: Run) -> None:
    page = as_("auditor").get(url("ledger", run.study))
    listed = [f"{release.sequence} {release.kind}" for release in page.context["list"].page]
    assert listed == ["5 model", "4 labels", "3 labels", "2 labels", "1 head_counts"]
    assert all('<td class="number">4</td>' * 2 in row for row in page.context["rows"][1:4])
    assert "entered" in page.context["rows"][4]
    charged = Release.objects.get(sequence=4).charge
    assert charged > 0
    assert re.search(rf'<td class="number">\s*{charged:.5f}\s*</td>', page.text)
    assert page.text.count(run.title) >= 4
    file = as_("auditor").get(url("ledger", run.study, kind="labels", format="csv")).getvalue().decode().splitlines()
    assert [line.split(",")[0] for line in file] == ["No.", "4", "3", "2"] and f",{charged:.5f}".rstrip("0") in file[1]
    listed = as_("auditor").get(url("alliances", run.study, format="csv"))
    assert listed["Content-Disposition"] == f'attachment; filename="{run.study.slug}-alliances.csv"'
    assert listed.getvalue() == b"Name,Hub,This site's name,Ended\r\n"
    Release.append([Release(study=run.study, kind="labels", content={"queries": 4, "labels": 0})])
    newer, zero = as_("auditor").get(url("ledger", run.study)).text, '<td class="number">0</td>'
    assert newer.count(zero) > page.text.count(zero), "0 labels are shown"
    who = factories.user_create("gone")
    services.membership_add(study=run.study, user=who, role=Role.RESEARCHER, acting_user=None)
    as_("gone").get(url("run_labels", run.study, run.pk))
    services.membership_remove(membership=run.study.memberships.get(user=who), acting_user=None)
    number = who.pk
    who.delete()
    assert f"deleted account {number}" in as_("auditor").get(url("ledger", run.study)).text


def test_a_report_has_charges_and_digests_of_one_run(run: Run) -> None:
    page = as_("auditor").get(url("ledger_report", run.study, run.pk))
    for release in Release.objects.filter(run=run.pk, kind__in=["labels", "model"]):
        assert release.content["digest"] in page.text
    for group in page.context["groups"]:
        assert 0 < group.spent_share <= group.allowed_share
        assert f'<td class="number">{group.cap:.4f}</td>' in page.text
    assert f"; {100 * run.student.accuracy:.0f} % correct on the test data" in text(page), "no decimal for 21 points"
    assert page.context["history"].rows[-1][:2] == (12, 12)
    moment = r'<time datetime="[^"]+">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\xa0UTC</time>'
    assert re.search(f"Report created</dt><dd>{moment}", page.text)
    waiting = url("ledger_report", run.study, run_start(run.study, share=0.1, **RUN).pk)
    assert "This run has not released anything yet" in as_("auditor").get(waiting).text


def test_looks_at_labels_and_downloads_of_models_are_in_the_register(run: Run) -> None:
    researcher, operator = as_("researcher"), as_("olga")
    researcher.get(url("run_labels", run.study, run.pk))
    operator.get(url("run_labels", run.study, run.pk, show="answered"))
    for _ in range(2):
        researcher.get(url("run_student_model", run.study, run.pk, 1))
    people = ("researcher", "olga", "researcher", "researcher")
    assert downloads(run) == list(zip(("labels", "labels", "model", "model"), people, strict=True))
    taken = Release.objects.get(study=run.study, sequence=8)
    assert (taken.content["digest"], taken.charge, taken.run) == (run.student.digest, 0, run.pk)
    assert "download: model" in as_("auditor").get(url("ledger", run.study)).text
    assert list(study_faults(run.study)) == []


def test_viewing_labels_on_pages_and_in_files_is_recorded_once(run: Run) -> None:
    client = as_("researcher")
    for query in ({"page": 2}, {}, {"page": 2}, {"show": "rejected"}, {"page": 1, "show": "answered"}):
        client.get(url("run_labels", run.study, run.pk, **query))
    for kind in ("csv", "npz"):
        assert client.get(url("run_labels_file", run.study, run.pk, kind)).status_code == 200
    assert downloads(run) == [("labels", "researcher")], "for any page at which people begin"
    Run.objects.filter(pk=run.pk).update(position=13)
    client.get(url("run_labels", run.study, run.pk))
    assert len(downloads(run)) == 2, "more was available"


def test_refused_readers_and_head_requests_are_not_recorded_as_downloads(run: Run) -> None:
    for page, *version in (("run_labels",), ("run_labels_file", "csv"), ("run_student_model", 1)):
        address = url(page, run.study, run.pk, *version)
        answer = as_("researcher").head(address)
        assert (answer.status_code, answer.content) == (200, b"")
        assert as_("auditor").get(address).status_code == 403
        assert as_("researcher").post(address).status_code == 405
    assert downloads(run) == []


def test_a_chain_is_found_whole_or_broken(run: Run, forged: Any) -> None:
    address = url("ledger_check", run.study)
    whole = as_("auditor").get(address, headers={"HX-Request": "true"}).text
    assert "Release: 5 rows, recomputed just now." in whole
    assert "Share record: 3 rows, recomputed just now." in whole
    assert "ε policy: 1 row, recomputed just now." in whole
    assert "<html" not in whole
    assert "<html" in as_("auditor").get(address).text
    forged(Release, "charge", 0)
    broken = as_("auditor").get(address).text
    assert "Release: the chain is broken." in broken
    assert "release 4: its content was changed after it was recorded (hash differs)." in broken


#: People who decide about runs or policies and can open the page.
DECIDERS = (Role.OPERATOR, Role.COMMITTEE, Role.CHAIR)


def test_the_length_of_a_chain_does_not_reveal_acts_of_people(run: Run) -> None:
    roles_fill(run.study)
    address, holder = url("ledger_check", run.study), DataHolder.objects.filter(study=run.study).earliest("pk")
    circumstance_record(study=run.study, pseudonym=holder.pseudonym, kind="died", reason="A letter.", acting_user=None)
    for reader in ("auditor", "steward"):
        seen = as_(reader).get(address).text
        assert "Consent event: 30 rows" in seen
        assert "Entry about who answers for a data holder: 1 row" in seen
    public = {model._meta.label_lower for model in chained_models()} & PUBLIC_CHAINS
    assert len(public) == len(PUBLIC_CHAINS), "the list names only chains"
    for role in DECIDERS:
        page = as_(role).get(address).text
        assert page.count(", recomputed just now.") == len(public), role
        assert page.count("Only people who handle consents can see how") == len(chained_models()) - len(public), role
        assert "Entry about who answers for a data holder: up to " in page, role
        assert "Release: 5 rows" in page, role


def test_a_decider_sees_that_a_fault_exists_without_its_rows(run: Run, forged: Any) -> None:
    roles_fill(run.study)
    forged(ConsentEvent, "channel", "'staff'", "sequence = 17")
    forged(Release, "charge", 0)
    address = url("ledger_check", run.study)
    for reader in ("auditor", "steward"):
        seen = as_(reader).get(address).text
        assert "consent event 17: its content was changed after it was recorded" in seen
        assert "release 4: its content was changed after it was recorded" in seen
    for role in DECIDERS:
        page = as_(role).get(address).text
        for words in ("Consent event: fault found.", "Release: fault found.", "Tell one of the study"):
            assert words in page, role
        assert "event 17" not in page and "its content" not in page, role


def test_page_checks_the_end_of_a_long_chain(run: Run, forged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ROWS_CHECKED", 2)
    address = url("ledger_check", run.study)
    said = "Release: 5 rows. The last 2 were recomputed just now;"
    forged(Release, "charge", 0, "sequence = 3")
    assert said in as_("auditor").get(address).text
    forged(Release, "charge", 0, "sequence = 4")
    assert "release 4" in as_("auditor").get(address).text
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounting_release WHERE sequence > 3")
    assert "the chain ends here, but its head is at 5" in as_("auditor").get(address).text
