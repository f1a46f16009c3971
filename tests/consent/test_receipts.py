"""Receipts for holders and exports for auditors: complete, verifiable, and without secrets."""

import base64
import csv
import hashlib
import io
import itertools
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from common.append_only import GENESIS, triggers_remove
from common.row_hashes import _content_hash
from consent import services
from consent.documents.receipts import receipt_code, receipt_event, receipt_facts, receipt_number
from consent.models import ConsentEvent, ConsentForm, DataHolder, Level, Role, Study
from consent.people.exports import COLUMNS
from consent.services.holders import holder_level_access
from consent.services.paper import PaperConsent, paper_consents_record
from consent.views.decision import events_of
from consent.wording.facts import facts_of
from tests import factories
from tests.consent.conftest import Decide, url
from tests.factories import user_create
from tests.pages import as_, text

FIELDS = {"data_categories": "Handwritten digits from 2020.", "retention": "Until 2030."}
FIELDS |= {"jurisdiction": "Germany (EU)", "recipients": "An archive in Łódź."}


@pytest.fixture
def study(db: None) -> Study:
    return factories.study_open(**FIELDS)


def test_a_receipt_says_what_was_decided_and_has_a_code_to_read_out(browser, study, holder, give) -> None:
    event = give(holder, "HIGH")
    page = text(browser.get(url("receipt", study, 1)))
    sentence = f"you allowed University Hospital to learn from your records for the study “{study.title}”"
    code, number = receipt_code(receipt_number(event.hash)), receipt_number(event.hash)
    shown = (*FIELDS.values(), "Consent given: high protection", "at most 56 times in 100", "UTC", "relatives")
    for part in (*shown, sentence, code, number, event.form.digest):
        assert part in page
    assert len(code) == 17
    for heard in (code, code.lower(), code.replace("-", " "), code.replace("0", "o").replace("1", "l")):
        assert receipt_event("".join(heard.split()).lower()) == event
    assert receipt_event("00000-00000-00000") is None


def test_every_decision_has_its_receipt_counted_among_ones_own(browser, study, holder, give) -> None:
    for n in range(3):
        give(factories.holder_create(study, f"other-{n}"), "LOW")
    give(holder, "HIGH")
    services.consent_withdraw(holder=holder, acting_user=None)
    page = browser.get(url("choice", study)).content.decode()
    assert url("receipt", study, 1) in page
    assert url("receipt", study, 2) in page
    assert "Consent withdrawn" in browser.get(url("receipt", study, 2)).content.decode()
    assert [browser.get(url("receipt", study, n)).status_code for n in (0, 3)] == [404, 404]


def test_the_json_follows_the_standards_parts(browser: Client, study: Study, holder: DataHolder, give: Decide) -> None:
    """W3C's Data Privacy Vocabulary group lists the mandatory fields: w3id.org/dpv/guides/consent-27560."""
    give(holder, "HIGH")
    give(holder, "LOW")
    last = services.consent_withdraw(holder=holder, acting_user=None)
    receipt = browser.get(url("receipt_json", study, 3)).json()
    record = receipt["consent_record"]
    (purpose,), (party,) = record["pii_processing"]["purposes"], record["party_identification"]
    mandatory = [
        (receipt, "schema_version receipt_id"),
        (record, "schema_version record_id pii_principal_id"),
        (record["pii_processing"], "privacy_notice language"),
        (purpose, "purpose pii_information pii_controllers storage_locations retention_period jurisdiction"),
        (purpose, "recipient_third_parties withdrawal_method"),
        (purpose["pii_information"][0], "pii_type"),
        (party, "party_id party_address party_name party_contact party_type"),
        (record["events"][0], "event_time validity_duration entity_id event_type event_state"),
    ]
    for part, names in mandatory:
        assert set(names.split()) <= set(part), names
    assert receipt["schema_version"] == record["schema_version"] == "ISO/IEC TS 27560:2023"
    assert receipt["receipt_id"] == record["record_id"] == receipt_number(last.hash)
    assert record["events"][-1]["extension"]["receipt_number"] == receipt_number(last.hash)
    assert record["pii_principal_id"] == str(holder.public_id)
    assert (purpose["purpose"], purpose["lawful_basis"]) == (study.purpose, "consent")
    assert purpose["pii_information"] == [{"pii_type": FIELDS["data_categories"]}]
    assert purpose["retention_period"] == FIELDS["retention"]
    assert party["party_name"] == study.controller
    assert record["pii_processing"]["privacy_notice"]["version"] == 1
    states = [event["event_state"] for event in record["events"]]
    assert states == [f"dpv:{state}" for state in ("ConsentGiven", "RenewedConsentGiven", "ConsentWithdrawn")]
    assert record["events"][0]["extension"]["epsilon"] == 1.0
    assert record["events"][1]["extension"]["right_guesses_in_100"] == 65
    first = browser.get(url("receipt_json", study, 1)).json()["consent_record"]
    assert first["events"] == record["events"][:1], "the receipt contains no later decisions"


@pytest.mark.parametrize(("language", "title"), [("en", "手書き"), ("de", "Zażółć – ε, Ж, “x” ≤ ß # *not* markup")])
def test_the_pdf_is_tagged_and_whole_in_every_alphabet(browser, study, holder, give, language, title, caplog) -> None:
    """If the font lacks letters, the receipt is made without following the standard."""
    services.study_update(study=study, title=title)
    give(holder, "HIGH")
    browser.cookies["django_language"] = language
    with caplog.at_level(logging.WARNING):
        response = browser.get(url("receipt_pdf", study, 1))
    assert response["Content-Type"] == "application/pdf"
    assert response.content.startswith(b"%PDF-")
    for part in (f"/Lang({language})".encode(), b"/StructTreeRoot", b"/MarkInfo", b"/Title"):
        assert part in response.content
    assert (b"pdfuaid:part>1<" in response.content) is (language == "de")
    assert not caplog.records or language == "en"


def test_the_copy_shows_a_bound_of_the_account_and_never_the_amount(browser, study, holder, give) -> None:
    give(holder, "HIGH")
    account = browser.get(url("export", study)).json()["account"]
    assert account["right_guesses_in_100_promised_at_most"] == 56
    assert account["right_guesses_in_100_by_all_releases_so_far_at_most"] == 50
    assert account["amount"] is None and "How much of your limit was really used depends" in account["why_no_amount"]


def test_the_export_holds_all_decisions(browser: Client, study: Study, holder: DataHolder, give: Decide) -> None:
    """It also contains scans of letters and who looked them up, and nothing about other people."""
    assert browser.get(url("export", study)).json()["decisions"] == []
    scan, steward = b"%PDF-1.7 signed", user_create("sten")
    today = timezone.now().date()
    paper = PaperConsent(1, holder.pseudonym, "LOW", 1, today, "a.pdf")
    paper_consents_record(study=study, consents=[paper], scans={"a.pdf": scan}, acting_user=steward)
    give(factories.holder_create(study, "P-2"), "LOW")
    for pseudonym, reason in ((holder.pseudonym, "They called."), ("P-2", "Another one.")):
        holder_level_access(study=study, pseudonym=pseudonym, acting_user=steward, reason=reason)
    data = browser.get(url("export", study)).json()
    assert [event["event_state"] for event in data["decisions"]] == ["dpv:ConsentGiven"]
    assert data["holder"]["account"]["user_name"] == "hanna"
    assert "P-2" not in str(data)
    (stored,), (look,) = data["scans"], data["looks_at_your_choice"]
    assert base64.b64decode(stored["content_base64"]) == scan
    assert (stored["signed_on"], stored["sha256"]) == (today.isoformat(), hashlib.sha256(scan).hexdigest())
    assert (look["by"], look["reason"]) == ("sten", "They called.")


def levels_that_fit(between: ConsentEvent, after: ConsentEvent, before_hash: str, after_hash: str) -> Iterator[str]:
    """Yield the levels of ``between`` with which the chain leads from ``before_hash`` to ``after_hash``."""
    for level in Level.values:
        candidate = ConsentEvent.objects.get(pk=between.pk)
        candidate.level, candidate.previous_hash = level, before_hash
        next_one = ConsentEvent.objects.get(pk=after.pk)
        next_one.previous_hash = candidate.computed_hash()
        if next_one.computed_hash() == after_hash:
            yield level


def test_two_receipts_do_not_reveal_the_level_of_a_decision_in_between(study: Study, give: Decide) -> None:
    levels, make = {"before": "HIGH", "between": "LOW", "after": "HIGH"}, factories.holder_create
    before, between, after = (give(make(study, name, user=user_create(name)), levels[name]) for name in levels)
    assert list(levels_that_fit(between, after, before.hash, after.hash)) == ["LOW"], "the hashes reveal the level"

    def numbers(event: ConsentEvent) -> set[str]:
        """Return all possible hashes in everything that a holder may download."""
        client = as_(event.holder.user)
        names = {"receipt": [1], "receipt_json": [1], "export": []}
        shown = " ".join(client.get(url(name, study, *args)).text for name, args in names.items())
        return set(re.findall(r"\b[0-9a-f]{64}\b", shown))

    assert receipt_number(before.hash) in numbers(before)
    for first, last in itertools.product(numbers(before), numbers(after)):
        assert list(levels_that_fit(between, after, first, last)) == []


def checked(number: str) -> str:
    out = io.StringIO()
    call_command("verify_receipt", number, stdout=out)
    return out.getvalue()


def test_an_auditor_finds_the_decision_of_a_receipt(study: Study, holder: DataHolder, give: Decide) -> None:
    give(factories.holder_create(study, "P-2"), "HIGH")
    event = give(holder, "LOW")
    report = checked(f" {receipt_number(event.hash).upper()} ")
    for part in ("Consent given: low protection", holder.pseudonym, "Decision 2 of study “digits” is unchanged"):
        assert part in report
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE consent_consentevent SET level = 'HIGH'")
    with pytest.raises(CommandError, match="changed after it was written"):
        checked(receipt_number(event.hash))


def test_numbers_of_earlier_keys_and_receipts_are_found(study, holder, give, settings) -> None:
    event = give(holder, "LOW")
    number, earlier_key = receipt_number(event.hash), settings.SECRET_KEY
    settings.SECRET_KEY = "another"
    assert receipt_number(event.hash) != number
    with pytest.raises(CommandError, match="IPATE_SIGNING_KEY_FALLBACKS"):
        checked(number)
    settings.SECRET_KEY_FALLBACKS = [earlier_key]
    for each in (number, receipt_number(event.hash), event.hash):
        assert "is unchanged" in checked(each)


def test_a_receipt_keeps_the_words_that_were_read(give: Decide, db: None) -> None:
    names = ("data_categories", "recipients", "retention", "jurisdiction")
    before, after = (dict(zip(names, (f"{when} {n}" for n in range(4)), strict=True)) for when in ("before", "after"))
    study = factories.study_open("told", **before)
    holder = factories.holder_create(study)
    give(holder, "HIGH")
    for name in names:
        with pytest.raises(ValidationError, match="belongs to the version"):
            services.study_update(study=study, **{name: after[name]})
    factories.form_publish(study, {"en": "New."}, renewal="required", facts=facts_of(study) | after)
    give(holder, "HIGH")
    first, second = (str(receipt_facts(event)) for event in events_of(holder)[::-1])
    for name in names:
        assert before[name] in first and after[name] not in first
        assert after[name] in second and before[name] not in second


ADDRESS = "/studies/digits/recruitment/consents."


@pytest.fixture
def decided(db: None, give: Decide) -> Study:
    """Let P-1 change from HIGH to LOW, P-2 withdraw and P-3 refuse."""
    decided = factories.study_open()
    first, second, third = (factories.holder_create(decided, f"P-{n}") for n in (1, 2, 3))
    give(first, "HIGH")
    give(second, "AVERAGE")
    give(first, "LOW")
    services.consent_withdraw(holder=second, acting_user=None)
    services.consent_refuse(holder=third, acting_user=None)
    factories.member(decided, "aud", Role.AUDITOR)
    return decided


def export(kind: str) -> str:
    response = as_("aud").get(ADDRESS + kind)
    assert response.streaming
    return b"".join(response.streaming_content).decode()


def test_every_decision_is_in_both_files_with_the_number_of_its_receipt(decided: Study) -> None:
    table = list(csv.DictReader(io.StringIO(export("csv"))))
    document = json.loads(export("json"))["decisions"]
    assert [row["kind"] for row in table] == ["given", "given", "changed", "withdrawn", "refused"]
    assert tuple(table[0]) == tuple(document[0]) == COLUMNS
    numbers = [receipt_number(event.hash) for event in ConsentEvent.chain(decided.pk)]
    assert [row["number"] for row in table] == [row["number"] for row in document] == numbers
    marks = [row["holder"] for row in table]
    assert marks[0] == marks[2] != marks[1] == marks[3]
    assert len(set(marks)) == 3


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_nothing_reveals_a_persons_choice_to_an_auditor(decided: Study, kind: str) -> None:
    result = export(kind)
    rows = result[result.index('"decisions"') :] if kind == "json" else result
    for event in ConsentEvent.chain(decided.pk):
        for secret in (event.holder.pseudonym, event.hash, event.recorded_at.isoformat()):
            assert secret not in result, "a hash would allow trying every level"
    assert not any(level in rows for level in Level.values)
    for name, role in (("olga", Role.STEWARD), ("carla", Role.COMMITTEE)):
        assert as_(factories.member(decided, name, role)).get(ADDRESS + kind).status_code == 403, "only for auditors"


def test_chains_of_questions_can_be_recomputed_from_the_file(decided: Study) -> None:
    """By the formula in docs/consent.md, for rows that reveal nothing about holders."""
    factories.policy_approve(decided, 0.5, 1, 2)
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


def written(decided: Study, tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"file.{kind}"
    path.write_text(export(kind))
    return path


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_is_verified_against_the_records(decided, tmp_path, kind: str, give, capsys) -> None:
    path = written(decided, tmp_path, kind)
    give(decided.holders.get(pseudonym="P-3"), "HIGH")  # since the export
    call_command("verify_consents", "digits", path)
    assert "The file matches the records: 5 decisions" in capsys.readouterr().out
    path.write_text(path.read_text().replace("refused", "given"))
    with pytest.raises(CommandError, match="decision 5: kind in the file differs from the record"):
        call_command("verify_consents", "digits", path)


def test_a_file_from_before_a_change_of_the_key_still_verifies(decided, tmp_path, settings) -> None:
    path = written(decided, tmp_path, "csv")
    before = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key", [before]
    call_command("verify_consents", "digits", path)
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(CommandError, match="holder, number in the file"):
        call_command("verify_consents", "digits", path)


def test_an_older_file_reveals_a_rewritten_chain(decided: Study, tmp_path: Path) -> None:
    path = written(decided, tmp_path, "csv")
    triggers_remove(connection)
    event = ConsentEvent.chain(decided.pk).get(sequence=3)
    event.level = "AVERAGE"
    with connection.cursor() as cursor:  # recomputed, as someone with the database could
        statement = "UPDATE consent_consentevent SET level = %s, hash = %s WHERE id = %s"
        cursor.execute(statement, ["AVERAGE", event.computed_hash(), event.pk])
    with pytest.raises(CommandError, match="decision 3: number in the file differs from the record"):
        call_command("verify_consents", "digits", path)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM consent_consentevent WHERE sequence = 5")
    with pytest.raises(CommandError, match="decision 5: is not in the records, which end before it"):
        call_command("verify_consents", "digits", path)
