"""Pseudonyms: one spelling in every input, lists of people, and lookups of earlier registrations."""

import json
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from consent.admin import DataHolderForm
from consent.models import Circumstance, DataHolder, Invitation, Study
from consent.people.pseudonyms import Invited, holder_by_pseudonym, holder_named, invitees_read
from consent.services import holders_register
from consent.services.erasures import erasure_ask
from consent.services.holders import circumstance_record, holder_level_access
from consent.services.invitations import invitations_create, link_reissue
from consent.services.paper import PaperConsent, PaperError, paper_consents_record
from ipate_web.staff.invitations import InvitationsForm
from learning.formats import DataError, Rows, schema_from_json
from learning.formats.read import read_file
from tests.factories import study_open, user_create
from tests.reading import read_here  # noqa: F401
from training.services.datasets import dataset_import
from training.services.erasures import records_erase

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_here")]

FIELD = Path(__file__).parents[1] / "field"
DOCUMENT = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "x", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 1},
        {"name": "y", "role": "label"},
    ],
    "classes": ["no", "yes"],
}
SCHEMA = schema_from_json(DOCUMENT)


@pytest.fixture
def study(db: None) -> Study:
    return study_open()


def _import(study: Study, rows: Rows) -> None:
    dataset_import(study=study, name=f"d{study.datasets.count()}", kind="private", rows=rows, schema=SCHEMA)


def _csv(study: Study, name: str, folder: Path) -> None:
    file = folder / "records.csv"
    file.write_text(f'who,x,y\n"{name}",1,no\n', encoding="utf-8", newline="")
    _import(study, read_file(file, SCHEMA))


def _excel(study: Study, name: str, folder: Path) -> None:
    pd.DataFrame({"who": [name], "x": [1], "y": ["no"]}).to_excel(folder / "records.xlsx", index=False)
    _import(study, read_file(folder / "records.xlsx", SCHEMA))


def _parquet(study: Study, name: str, folder: Path) -> None:
    pd.DataFrame({"who": [name], "x": [1], "y": ["no"]}).to_parquet(folder / "records.parquet")
    _import(study, read_file(folder / "records.parquet", SCHEMA))


def _npz(study: Study, name: str, folder: Path) -> None:
    np.savez(folder / "records.npz", x=np.ones((1, 1), np.float32), y=np.zeros(1, np.int64), holder=np.array([name]))
    _import(study, read_file(folder / "records.npz", SCHEMA))


def _rows(study: Study, name: str, folder: Path) -> None:
    _import(study, Rows(np.ones((1, 1), np.float32), np.zeros(1, np.int64), [name]))


def _list(study: Study, name: str, folder: Path) -> None:
    invitations_create(study=study, acting_user=None, pseudonyms=invitees_read(f"Q-1\n{name}\n"))


def _table(study: Study, name: str, folder: Path) -> None:
    invitations_create(study=study, acting_user=None, pseudonyms=invitees_read(f'language;pseudonym\nde;"{name}"\n'))


def _names(study: Study, name: str, folder: Path) -> None:
    invitations_create(study=study, acting_user=None, pseudonyms=[name])


def _admin(study: Study, name: str, folder: Path) -> None:
    class Form(DataHolderForm):
        class Meta:
            model = DataHolder
            fields = ("study", "pseudonym")

    form = Form({"study": study.pk, "pseudonym": name})
    if not form.is_valid():
        taken = any(error.code == "unique_together" for error in form.non_field_errors().as_data())
        if not taken:
            raise ValidationError(form.errors["pseudonym"].as_data())
    else:
        form.save()


#: Inputs in which an unknown pseudonym creates a person.
REGISTER = (_csv, _excel, _parquet, _npz, _rows, _list, _table, _names, _admin)


def _paper(study: Study, name: str, user: Any) -> None:
    row = PaperConsent(1, name, "HIGH", 1, timezone.localdate(), "scan.pdf")
    paper_consents_record(study=study, consents=[row], scans={"scan.pdf": b"%PDF-"}, acting_user=user, dry_run=True)


#: Inputs in which a pseudonym must be known.
NAME: list[Callable[[Study, str, Any], Any]] = [
    lambda study, name, user: holder_level_access(study=study, pseudonym=name, acting_user=user, reason="They called."),
    lambda study, name, user: link_reissue(study=study, pseudonym=name, acting_user=user, reason="They called."),
    _paper,
    lambda study, name, user: circumstance_record(
        study=study, pseudonym=name, kind=Circumstance.Kind.DIED, reason="Register.", acting_user=user
    ),
]


@pytest.mark.parametrize(
    ("typed", "spelled"), [("Mu\u0308ller ", "M\xfcller"), ("\xa0P-17\u3000", "P-17"), ("101.0", "101"), ("007", "007")]
)
def test_every_input_finds_the_same_person(study: Study, typed: str, spelled: str, tmp_path: Path) -> None:
    for way in REGISTER:
        way(study, typed, tmp_path)
        assert set(study.holders.values_list("pseudonym", flat=True)) - {"Q-1"} == {spelled}, way
    for named in NAME:
        named(study, typed, user_create(f"olga{NAME.index(named)}"))


REFUSED = {
    "P-17\u200b": "ZERO WIDTH SPACE",
    "P\xad17": "SOFT HYPHEN",
    "\u202eP-17": "RIGHT-TO-LEFT OVERRIDE",
    "P-17\ufeff": "U\\+FEFF",
    "P\ufe0f17": "VARIATION SELECTOR",
    "P\xa017": "NO-BREAK SPACE",
    "=1+1": "formula|belong to anyone",  # a workbook stores the result of a formula: nothing
    "1.23457E+14": "as text",
    "erased:17": "erased",
    "P" * 201: "201",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_every_input_refuses_the_same_pseudonyms(study: Study, typed: str, tmp_path: Path) -> None:
    for way in REGISTER:
        with pytest.raises((DataError, ValidationError), match=REFUSED[typed]):
            way(study, typed, tmp_path)
    for named in NAME:
        with pytest.raises((PaperError, ValidationError), match=REFUSED[typed]):
            named(study, typed, user_create(f"olga{NAME.index(named)}"))
    assert not study.holders.exists()


def test_numbers_name_people_as_long_as_no_digit_can_be_lost(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    for values, names in (([101.0, 102.0], ["101", "102"]), ([2**53 - 1, 7], [str(2**53 - 1), "7"])):
        pd.DataFrame({"who": values, "x": [0, 1], "y": ["no", "yes"]}).to_parquet(file)
        assert read_file(file, SCHEMA).holders == names
    for number in (2**53, 2.0**60):
        pd.DataFrame({"who": [1, number], "x": [0, 1], "y": ["no", "yes"]}).to_parquet(file)
        with pytest.raises(DataError, match=r"row 2, column who: .* as text"):
            read_file(file, SCHEMA)
    np.savez(tmp_path / "a.npz", x=np.ones((2, 1), np.float32), y=np.zeros(2, np.int64), holder=np.array([101.0, 7]))
    assert read_file(tmp_path / "a.npz", SCHEMA).holders == ["101", "7"]


def test_people_who_were_registered_under_another_spelling_are_found(study: Study) -> None:
    names = ("Mu\u0308ller", "101.0", "P\u200b")
    old = {name: DataHolder.objects.create(study=study, pseudonym=name) for name in names}
    twice = [DataHolder.objects.create(study=study, pseudonym=name) for name in ("Jose\u0301", "Jos\xe9")]
    assert holder_named(study, "P\u200b") == old["P\u200b"], "nobody else can have this name"
    with pytest.raises(ValidationError, match=r"U\+0000"):
        holder_named(study, "P\0")
    import_module("consent.migrations.0005_canonical_pseudonyms").respell(apps, None)
    assert holders_register(study=study, pseudonyms=["M\xfcller", "Mu\u0308ller", "101"]) == {
        "M\xfcller": old["Mu\u0308ller"].pk,
        "Mu\u0308ller": old["Mu\u0308ller"].pk,
        "101": old["101.0"].pk,
    }
    assert [holder_by_pseudonym(study, each.pseudonym) for each in twice] == twice, "two people never become one"


@pytest.mark.parametrize("before", ["Mu\u0308ller", "101.0"])
def test_a_person_erased_under_another_spelling_keeps_their_account(study: Study, before: str) -> None:
    holder = DataHolder.objects.create(study=study, pseudonym=before)
    erasure_ask(holder=holder, acting_user=None)
    records_erase(study.pk)
    name = unicodedata.normalize("NFC", before).removesuffix(".0")
    for typed in (before, name):
        assert holders_register(study=study, pseudonyms=[typed]) == {typed: holder.pk}


GUARDIAN = Invited("P-17", "guardian", date(2031, 5, 4))


@pytest.mark.parametrize(
    ("text", "people"),
    [
        ("invitations-semicolons.txt", [replace(GUARDIAN, language="de"), Invited("P-18", language="en")]),
        ("invitations-tabs.txt", [GUARDIAN, Invited("P-18")]),
        ("invitations-quoted-header.txt", [GUARDIAN]),
        ("invitations-two-columns.txt", [Invited("P-17", language="de"), Invited("P-18", language="en")]),
        ("\ufeffUntil\tPseudonym\tAnswers\t\r\n2031-05-04\tP-17\tguardian\t\r\n", [GUARDIAN]),
        ('pseudonym,answers\n"Doe, Jane",proxy\n\nP-3\n', [Invited("Doe, Jane", "proxy"), Invited("P-3")]),
        ("pseudonym\nP-1\nP-1\n", [Invited("P-1")]),
        ("P-1\n\n Mu\u0308ller \nM\xfcller\n", [Invited("P-1"), Invited("M\xfcller")]),
    ],
)
def test_lists_of_people_are_read_in_every_format(text: str, people: list[Invited]) -> None:
    text = (FIELD / text).read_text() if text.endswith(".txt") else text
    assert invitees_read(text) == people


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("P-17;guardian;2031-05-04\n", "Row 1 looks like a row of a table. Start with a line of column names"),
        ("P-1\nP-17\tguardian\n", "Row 2 looks like"),
        ("P-1\nP-17, guardian\n", "Row 2 looks like"),
        ("P-1\nP-17 guardian\n", "Row 2 looks like"),
        ("P-1\nP-17 2031-05-04\n", "Row 2 looks like"),
        ("P-1\nP-17   P-18\n", "Row 2 looks like"),
        ('"P-17"\n', "Row 1 looks like"),
        ("| P-17 | guardian |\n", "Row 1 looks like"),
        ("Patient ID\nP-17\n", "Row 1, “Patient ID”, looks like a heading"),
        ("pseudonym,birthday\nP-1,2000-01-01\n", "The columns in the first line are wrong: pseudonym, birthday"),
        ("answers;until\nguardian;2031-05-04\n", "The columns in the first line are wrong"),
        ("pseudonym,language,language\nP-1,de,en\n", "each only once"),
        ("pseudonym,language\nP-1,de,x\n", "Row 2 has more cells"),
        ("pseudonym,answers\nP-1,aunt\n", "Row 2: write a pseudonym"),
        ("pseudonym,language\nP-1,xx\n", "Row 2: the language"),
        ("pseudonym,until\n\nP-2,04.05.2031\n", "Row 3: “until” must be a date"),
        ("pseudonym,answers,until\nP-1,guardian,2031-05-04\nP-1,,\n", "Row 3: “P-1” also appears in row 2"),
        ('pseudonym,address\nP-1,"1 Street\nP-2,\n', "not a CSV"),
        ("P-1\nP-17\u200b\n", r"Row 2: The pseudonym “P-17�” contains the invisible character U\+200B"),
    ],
)
def test_a_file_that_looks_like_a_table_is_refused_as_a_list_of_names(text: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        invitees_read(text)


ALIKE = ["p_17", "P-017", "\u0420-17", "P-l7", "P17", "P-\uff117"]
"""Pseudonyms that are easily mistaken for P-17."""


@pytest.mark.parametrize("name", ALIKE)
def test_a_new_pseudonym_that_looks_like_another_is_named_first(study: Study, name: str) -> None:
    holders_register(study=study, pseudonyms=["P-17", "P-18"])
    form = InvitationsForm({"pseudonyms": f"Q-1\n{name}"}, study=study)
    assert not form.is_valid() and name in (said := str(form.errors["pseudonyms"])) and "“P-17”" in said
    assert "different" in form.fields and "P-18" not in said
    assert InvitationsForm({"pseudonyms": f"Q-1\n{name}", "different": "on"}, study=study).is_valid()
    known = InvitationsForm({"pseudonyms": "P-17\nQ-1"}, study=study)
    assert known.is_valid() and "different" not in known.fields


def test_commands_register_nobody_whose_pseudonym_looks_like_another(study: Study, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("P-17\nP-0017\n")
    (tmp_path / "rows.csv").write_text("who,x,y\nP-17,1,no\nP 17,1,no\nP-18,1,no\n")
    (tmp_path / "schema.json").write_text(json.dumps(DOCUMENT))
    invite = ["invite", study.slug, "--pseudonyms", str(tmp_path / "list.txt")]
    load = [
        *("import_dataset", study.slug, str(tmp_path / "rows.csv"), "--kind", "private", "--name", "rows"),
        *("--schema", str(tmp_path / "schema.json")),
    ]
    out = StringIO()
    for command, names in ((invite, "“P-0017”, “P-17”"), (load, "“P 17”, “P-17”")):
        with pytest.raises(CommandError, match=names):
            call_command(*command, stdout=out)
        assert not study.holders.exists()
        call_command(*command, "--different-people", stdout=out)
        Invitation.objects.all().delete()
        study.holders.all().delete() if command is invite else None
