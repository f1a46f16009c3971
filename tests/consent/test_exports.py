"""Consent records as files: whole, verifiable, and nothing that an auditor may not see."""

import csv
import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from common.append_only import GENESIS, triggers_remove
from common.row_hashes import _content_hash
from consent import services
from consent.documents.receipts import receipt_number
from consent.models import ConsentEvent, ConsentForm, Level, Role, Study
from consent.people.exports import COLUMNS
from tests import factories
from tests.consent.conftest import Decide, member
from tests.pages import as_

ADDRESS = "/studies/digits/recruitment/consents."


@pytest.fixture
def study(db: None, give: Decide) -> Study:
    """P-1 changed from HIGH to LOW, P-2 withdrew, P-3 refused."""
    study = factories.study_open()
    first, second, third = (factories.holder_create(study, f"P-{n}") for n in (1, 2, 3))
    give(first, "HIGH")
    give(second, "AVERAGE")
    give(first, "LOW")
    services.consent_withdraw(holder=second, acting_user=None)
    services.consent_refuse(holder=third, acting_user=None)
    member(study, "aud", Role.AUDITOR)
    return study


def export(kind: str) -> str:
    response = as_("aud").get(ADDRESS + kind)
    assert response.streaming
    return b"".join(response.streaming_content).decode()


def test_every_decision_is_in_both_files_with_the_number_of_its_receipt(study: Study) -> None:
    table = list(csv.DictReader(io.StringIO(export("csv"))))
    document = json.loads(export("json"))["decisions"]
    assert [row["kind"] for row in table] == ["given", "given", "changed", "withdrawn", "refused"]
    assert tuple(table[0]) == tuple(document[0]) == COLUMNS
    numbers = [receipt_number(event.hash) for event in ConsentEvent.chain(study.pk)]
    assert [row["number"] for row in table] == [row["number"] for row in document] == numbers
    marks = [row["holder"] for row in table]
    assert marks[0] == marks[2] != marks[1] == marks[3]
    assert len(set(marks)) == 3


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_nothing_tells_an_auditor_one_persons_choice(study: Study, kind: str) -> None:
    result = export(kind)
    decided = result[result.index('"decisions"') :] if kind == "json" else result
    for event in ConsentEvent.chain(study.pk):
        for secret in (event.holder.pseudonym, event.hash, event.recorded_at.isoformat()):
            assert secret not in result, "against a hash every level could be tried"
    assert not any(level in decided for level in Level.values)
    for name, role in (("olga", Role.STEWARD), ("carla", Role.COMMITTEE)):
        assert as_(member(study, name, role)).get(ADDRESS + kind).status_code == 403, "it is for auditors"


def test_chains_of_questions_can_be_recomputed_from_the_file(study: Study) -> None:
    """By the formula in docs/consent.md, for rows that tell nothing of holders."""
    factories.policy_approve(study, 0.5, 1, 2)
    document = json.loads(export("json"))
    for name in ("forms", "policies"):
        previous = GENESIS
        for row in document[name]:
            recorded, content = row.pop("hash"), dict(row)
            added = ConsentForm.added_columns if name == "forms" else {}
            for moment in ("published_at", "proposed_at"):
                if moment in content:
                    content[moment] = content[moment].replace(" ", "T")
            assert content["previous_hash"] == previous
            assert _content_hash(content, content.values(), added) == recorded
            previous = recorded
    assert len(document["policies"]) == 2


def written(study: Study, tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"file.{kind}"
    path.write_text(export(kind))
    return path


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_is_verified_against_the_records(study, tmp_path, kind: str, give, capsys) -> None:
    path = written(study, tmp_path, kind)
    give(study.holders.get(pseudonym="P-3"), "HIGH")  # since the export
    call_command("verify_consents", "digits", path)
    assert "As on record: 5 decisions in the file" in capsys.readouterr().out
    path.write_text(path.read_text().replace("refused", "given"))
    with pytest.raises(CommandError, match="decision 5: kind in the file is not what is on record"):
        call_command("verify_consents", "digits", path)


def test_a_file_from_before_a_change_of_the_key_still_verifies(study, tmp_path, settings) -> None:
    path = written(study, tmp_path, "csv")
    before = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key", [before]
    call_command("verify_consents", "digits", path)
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(CommandError, match="holder, number in the file"):
        call_command("verify_consents", "digits", path)


def test_a_change_behind_the_chain_is_seen_in_an_older_file(study: Study, tmp_path: Path) -> None:
    path = written(study, tmp_path, "csv")
    triggers_remove(connection)
    event = ConsentEvent.chain(study.pk).get(sequence=3)
    event.level = "AVERAGE"
    with connection.cursor() as cursor:  # computed anew, as whoever holds the database could
        statement = "UPDATE consent_consentevent SET level = %s, hash = %s WHERE id = %s"
        cursor.execute(statement, ["AVERAGE", event.computed_hash(), event.pk])
    with pytest.raises(CommandError, match="decision 3: number in the file is not what is on record"):
        call_command("verify_consents", "digits", path)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM consent_consentevent WHERE sequence = 5")
    with pytest.raises(CommandError, match="decision 5: the records end before it"):
        call_command("verify_consents", "digits", path)
