"""What auditors take away: the whole ledger with its curves, and a report of a run that prints."""

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounting.models import LedgerEntry
from accounting.selectors import account_consumption
from consent.models import Study
from consent.services import membership_add
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    fields = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 40.0}, "wanted_labels": 8}
    return run_finish(run_start(study_with_table(), **fields))


def client_of(study: Study, role: str) -> Client:
    user = user_create(f"{role} of {study.slug}")
    membership_add(study=study, user=user, role=role)
    client = Client()
    client.force_login(user)
    return client


def entries_of(run: Run) -> list[LedgerEntry]:
    return list(LedgerEntry.objects.filter(study=run.study).order_by("sequence"))


def test_the_csv_holds_every_entry_with_its_curves(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ledger.csv"
    call_command("export_ledger", run.study.slug, "--format", "csv", "--output", str(path), stderr=io.StringIO())
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline="")))
    entries = entries_of(run)
    assert len(rows) == len(entries) == 6
    for row, entry in zip(rows, entries, strict=True):
        assert (row["sequence"], row["hash"], row["run"]) == (str(entry.sequence), entry.hash, str(run.pk))
        assert json.loads(row["rdp"]) == entry.rdp
        assert json.loads(row["orders"]) == entry.orders
        assert json.loads(row["mechanism"]) == {"name": "gnmax", "sigma": 40.0}
        assert float(row["sensitivity"]) == entry.sensitivity
        assert row["notice"].startswith("Not for publication")


def test_the_json_holds_every_entry_the_totals_and_where_the_chain_ends(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("export_ledger", run.study.slug)
    document = json.loads(capsys.readouterr().out)
    entries = entries_of(run)
    assert document["notice"].startswith("Not for publication")
    assert document["head"] == {"sequence": 6, "hash": entries[-1].hash, "genuine": True}
    assert [row["rdp"] for row in document["entries"]] == [entry.rdp for entry in entries]
    totals = {group["group"]: group["spent_rdp"] for group in document["groups"]}
    assert totals == {group.name: group.spent_rdp for group in run.account.groups.all()}
    assert all(group["settled_at"] for group in document["groups"])


def test_the_json_tells_what_is_held_for_a_run_that_has_not_voted(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = run_start(run.study, **TABLE_RUN, share=0.5)
    call_command("export_ledger", run.study.slug)
    held = [group for group in json.loads(capsys.readouterr().out)["groups"] if group["run"] == str(waiting.pk)]
    assert [group["level"] for group in held] == ["HIGH", "AVERAGE", "LOW"]
    for group in held:
        assert (group["is_reservation"], group["settled_at"], any(group["spent_rdp"])) == (True, None, False)
        rates = [rdp / order for rdp, order in zip(group["reserved_rdp"], run.account.orders, strict=True)]
        assert min(rates) == pytest.approx(max(rates), rel=1e-12), "a Gaussian curve"
        assert 0 < group["allowance"] < group["epsilon"]


def test_an_empty_ledger_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("export_ledger", study_with_table(holders=3).slug)
    assert json.loads(capsys.readouterr().out)["entries"] == []


def test_an_unknown_study_is_named_with_those_there_are() -> None:
    with pytest.raises(CommandError, match="no study “nowhere”"):
        call_command("export_ledger", "nowhere")


def test_an_auditor_downloads_what_the_command_writes(run: Run) -> None:
    response = client_of(run.study, "auditor").get(f"/studies/{run.study.slug}/ledger/ledger.json")
    assert response.headers["Content-Disposition"].endswith('ledger-table-not-for-publication.json"')
    assert len(json.loads(b"".join(response.streaming_content))["entries"]) == 6


@pytest.mark.parametrize("page", ["ledger/ledger.csv", "ledger/ledger.json", "ledger/{run}/report/"])
def test_costs_leave_for_those_alone_who_may_see_them(run: Run, page: str) -> None:
    address = f"/studies/{run.study.slug}/{page.format(run=run.pk)}"
    assert client_of(run.study, "researcher").get(address).status_code == 403
    assert client_of(study_with_table("other", holders=3), "auditor").get(address).status_code == 404
    assert Client().get(address).status_code == 302
    assert client_of(run.study, "auditor").get(address).status_code == 200


def test_there_is_no_export_in_a_format_that_nobody_writes(run: Run) -> None:
    assert client_of(run.study, "auditor").get(f"/studies/{run.study.slug}/ledger/ledger.pdf").status_code == 404


def test_the_report_has_the_numbers_in_tables_and_draws_them(run: Run) -> None:
    page = client_of(run.study, "auditor").get(f"/studies/{run.study.slug}/ledger/{run.pk}/report/").content.decode()
    assert "Not for publication" in page
    for item in account_consumption(run.account):
        assert f"{item.spent:.4f}" in page
        assert f'<td class="number">{item.announced:.1f}</td>' in page, "the bound as it leaves staff"
    for entry in entries_of(run):
        assert entry.hash in page
    plots = [ElementTree.fromstring(svg) for svg in re.findall(r'<svg[^>]*role="img".*?</svg>', page, re.DOTALL)]
    lines = [plot.findall(".//{*}polyline") for plot in plots]
    assert [len(found) for found in lines] == [3, 3]
    rising = [tuple(map(float, point.split(","))) for point in lines[0][0].attrib["points"].split()]
    assert len(rising) == 3, "the start and two batches"
    assert rising[0][0] < rising[1][0] < rising[2][0]
    assert rising[0][1] > rising[1][1] > rising[2][1]


def test_a_report_in_german_writes_its_numbers_as_germans_do(run: Run) -> None:
    client = client_of(run.study, "auditor")
    address = f"/studies/{run.study.slug}/ledger/{run.pk}/report/"
    page = client.get(address, headers={"Accept-Language": "de"}).text
    assert "<dd>0,0001</dd>" in page
    assert re.search(r">0,\d+</text>", page)
    assert not re.search(r">\d+\.\d+</text>", page)


def test_the_names_of_curves_that_end_together_stand_below_each_other() -> None:
    run = run_finish(run_start(study_with_table(), **TABLE_RUN | {"variant": "standard", "wanted_labels": 8}))
    assert len({tuple(group.spent_rdp) for group in run.account.groups.all()}) == 1, "all have spent the same"
    page = client_of(run.study, "auditor").get(f"/studies/{run.study.slug}/ledger/{run.pk}/report/").content.decode()
    for plot in re.findall(r'<svg[^>]*role="img".*?</svg>', page, re.DOTALL):
        drawing = ElementTree.fromstring(plot)
        names = [group.find("{*}text") for group in drawing.findall(".//{*}g")]
        heights = sorted(float(name.attrib["y"]) for name in names)
        assert all(below - above >= 14 for above, below in pairwise(heights)), heights
        assert heights[-1] < float(drawing.attrib["viewBox"].split()[3])


def test_a_simulation_has_no_report(run: Run) -> None:
    simulation = run_finish(run_start(run.study, **TABLE_RUN, simulation=True, wanted_labels=4))
    address = f"/studies/{run.study.slug}/ledger/{simulation.pk}/report/"
    assert client_of(run.study, "auditor").get(address).status_code == 404
