"""Decisions on paper."""

from datetime import date

import pytest

from consent import selectors, services
from consent.models import ConsentEvent, Disposal, Mail, Study
from consent.promises.status import holder_status
from consent.services.erasures import holders_waiting
from consent.services.paper import PaperConsent, PaperError, paper_consents_record, paper_list_read, scan_load
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide, circumstance, events
from tests.factories import user_create

PDF = b"%PDF-1.7 signed"
HEAD = "pseudonym,level,form_version,signed_on,evidence\n"


@pytest.fixture
def study(clock: Clock, db: None) -> Study:
    """Return a study open since 1 January 2026 with ε 1, 2, 3 and three holders; today is 11 January."""
    study = factories.study_open()
    services.holders_register(study=study, pseudonyms=["P-1", "P-2", "P-3"])
    clock.days_pass(10)
    return study


def row(pseudonym: str = "P-1", level: str = "HIGH", *, day: int = 5, number: int = 2, **fields) -> PaperConsent:
    defaults = {"form_version": 1, "signed_on": date(2026, 1, day), "evidence": "a.pdf"}
    return PaperConsent(row=number, pseudonym=pseudonym, level=level, **{**defaults, **fields})


def record(study: Study, *rows: PaperConsent, **options) -> int:
    return paper_consents_record(
        study=study, consents=rows, scans={"a.pdf": PDF}, acting_user=user_create("olga"), **options
    )


def error_message(study: Study, *rows: PaperConsent) -> str:
    with pytest.raises(PaperError) as error:
        record(study, *rows)
    assert not ConsentEvent.objects.filter(channel="paper").exists(), "all or nothing"
    return str(error.value)


def test_a_decision_on_paper_names_who_recorded_it_and_its_scan(study: Study) -> None:
    first, second, _third = study.holders.order_by("pseudonym")
    services.holder_link(holder=first, user=user_create("hanna"))
    assert record(study, row("P-1", "LOW"), row("P-2", "NONE", number=3)) == 2
    event = ConsentEvent.objects.get(holder=first)
    assert (event.kind, event.level, event.channel, event.form.version) == ("given", "LOW", "paper", 1)
    assert (event.recorded_by.username, event.signed_on) == ("olga", date(2026, 1, 5))
    assert scan_load(study, event.evidence) == (f"{event.evidence}.pdf", PDF)
    assert events(second) == [("refused", "")]
    assert selectors.consent_snapshot(study).epsilons.tolist() == [3]
    assert list(ConsentEvent.chain_faults(study.pk)) == []
    event.evidence = "0" * 64
    assert event.computed_hash() != event.hash, "the scan is part of the hash"
    assert list(Mail.objects.filter(user=first.user).values_list("kind", flat=True)) == ["receipt"]


@pytest.mark.parametrize("records", ["", "keep"])
def test_a_later_paper_changes_the_level_or_withdraws(study: Study, records: str) -> None:
    record(study, row(level="HIGH", day=2))
    record(study, row(level="LOW", day=3, weaker=True))
    record(study, row(level="NONE", day=4, records=records))
    holder = study.holders.get(pseudonym="P-1")
    assert events(holder) == [("given", "HIGH"), ("changed", "LOW"), ("withdrawn", "")]
    assert bool(holders_waiting(study)) is (records == ""), "records are erased unless the letter keeps them"
    assert [each.kind for each in Disposal.objects.all()] == ["kept" if records else "asked"]


def test_weaker_protection_on_paper_needs_its_own_box(study: Study) -> None:
    record(study, row(level="HIGH", day=2), row("P-2", level="LOW", day=2, number=3))
    text = (
        "pseudonym,level,form_version,signed_on,evidence,weaker\n"
        "P-1,LOW,1,2026-01-03,a.pdf,\nP-2,LOW,1,2026-01-03,a.pdf,no\nP-3,LOW,1,2026-01-03,a.pdf,yes\n"
    )
    assert record(study, *paper_list_read(text.encode())) == 3, "no error reveals who was promised more"
    first, second, _third = study.holders.order_by("pseudonym")
    assert events(first) == [("given", "HIGH"), ("changed", "HIGH")]
    assert events(second)[-1] == ("changed", "LOW")
    record(study, row(level="LOW", day=4, weaker=True))
    event = ConsentEvent.objects.filter(holder__pseudonym="P-1").latest("sequence")
    assert (event.level, event.epsilon_before) == ("LOW", 1)
    assert list(selectors.promise_faults(study)) == []


def test_days_on_paper_are_those_of_the_sites_zone(study: Study, give: Decide, clock: Clock, settings) -> None:
    settings.TIME_ZONE = "Pacific/Auckland"
    clock.days_pass(-3 / 24)  # 21:00 on 10 January in UTC, 10:00 on the 11th in this time zone
    holder = study.holders.get(pseudonym="P-1")
    give(holder, "HIGH")
    services.consent_withdraw(holder=holder, acting_user=None)
    assert "made a newer decision on 2026-01-11" in error_message(study, row("P-1", day=11))
    assert record(study, row("P-2", day=11)) == 1, "the day has begun"
    policy = factories.policy_approve(study, high=0.5)
    assert record(study, row("P-3", day=11)) == 1
    assert ConsentEvent.objects.get(holder__pseudonym="P-3").policy == policy, "in force on that day"


def test_paper_does_not_replace_newer_decisions(study: Study, give: Decide) -> None:
    first = study.holders.get(pseudonym="P-1")
    give(first, "HIGH")
    with pytest.raises(PaperError, match="made a newer decision on 2026-01-11"):
        record(study, row(level="LOW", day=5))
    factories.form_publish(study, {"en": "More."}, renewal="required")
    record(study, row("P-2", day=5))
    with pytest.raises(PaperError, match="newer decision on 2026-01-05"):
        record(study, row("P-2", day=5))
    assert len(selectors.consent_snapshot(study)) == 0, "the signed version is no longer in force"
    assert holder_status(study.holders.get(pseudonym="P-2")).counts is False


@pytest.mark.parametrize(
    ("after", "promised"),
    [((2, 3, 4), 1), ((0.5, 1, 1.5), 0.5), (None, 1)],
    ids=["a larger ε since the signature does not count", "a smaller one does", "nothing has changed"],
)
def test_paper_decisions_are_recorded_with_the_odds_printed_on_them(study, clock, after, promised: float) -> None:
    if after:
        factories.policy_approve(study, *after)  # on the 11th, after the signature
    record(study, row(level="HIGH", day=5))
    assert selectors.consent_snapshot(study).epsilons.tolist() == [promised]


def test_faults_are_reported_by_row_and_nothing_is_recorded(study: Study) -> None:
    circumstance(study, "guardian", pseudonym="P-2")
    rights = "one of parents, guardianship, other"
    for wrong, message in (
        (row("P-9", number=7), "Row 7: no one in this study has the pseudonym “P-9”"),
        (row(level="HIGHEST"), "Row 2: the level is “HIGHEST”. Write one of HIGH, AVERAGE, LOW, NONE"),
        (row(form_version=2), "Row 2: version 2 of the form was not published on 2026-01-05"),
        (row(day=20), "Row 2: the date of the signature is in the future"),
        (row(signed_on=date(2025, 12, 31)), "Row 2: no ε policy was in force on that day"),
        (row(evidence="b.pdf"), "Row 2: the scan “b.pdf” is missing"),
        (row(records="yes"), "Row 2: “records” is “yes”. Write “keep” for a person who withdraws, or leave it empty."),
        (
            row(records="keep"),
            "Row 2: “records” is “keep”. Write “keep” for a person who withdraws, or leave it empty.",
        ),
        (row("P-3"), "Row 2: “P-3” is also in row 1"),
        (row("P-2"), f"write the right that they ticked next to the statement ({rights}"),
        (row("P-2", authority="power"), rights),
        (row(authority="parents"), "“P-1” answered for themselves according to our records. Leave “authority” empty."),
        (row("P-2", authority="parents", text="fr"), "version 1 of the form has no text “fr”. Write one of de, en"),
    ):
        assert message in error_message(study, row("P-3", number=1), wrong)
    with pytest.raises(PaperError, match=r"a\.pdf is not a PDF, PNG or JPEG file"):
        paper_consents_record(study=study, consents=[row()], scans={"a.pdf": b"MZ"}, acting_user=user_create("olga"))
    assert not ConsentEvent.objects.exists()


def test_long_lists_are_recorded_in_parts_and_whole(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consent.services.paper._CHUNK", 2)
    record(study, *(row(f"P-{number}", number=number) for number in (1, 2, 3)))
    assert ConsentEvent.objects.filter(channel="paper").count() == 3
    assert list(ConsentEvent.chain_faults(study.pk)) == []


def test_a_list_is_read_in_any_order_of_columns_or_refused_with_a_reason() -> None:
    text = "level,pseudonym,evidence,signed_on,form_version,remark\nlow, P-1 ,a.pdf,2026-01-05,1,x\n"
    assert paper_list_read(text.encode()) == [row(level="LOW")]
    for text, message in (
        ("", "Columns are missing: pseudonym, level"),
        ("pseudonym,level\n", "Columns are missing: form_version, signed_on, evidence"),
        (
            HEAD + "P-1,LOW,1,2026-01-05," + "a" * 140_000,
            "This is not a CSV file (line 2: field larger than field limit",
        ),
        (HEAD + "P-1,LOW,one,2026-01-05,a.pdf\n", "Row 2: “form_version” must be a whole number"),
        (HEAD + "P-1,LOW,1,2026-01-05,a\nP-2,LOW,1,5.1.2026,a\n", "Row 3: “form_version” must be a whole number, and"),
    ):
        with pytest.raises(PaperError) as error:
            paper_list_read(text.encode())
        assert message in str(error.value)
