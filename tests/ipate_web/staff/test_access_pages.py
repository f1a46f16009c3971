"""Pages about single people and their numbers: look-ups of a choice, receipts read out, recruitment, changes."""

import json
import re
from itertools import product

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from accounting.group_budgets import head_counts
from accounting.models import HeadCount, Release
from accounting.shares import share_free
from common.append_only import triggers_remove
from consent import services
from consent.documents.receipts import receipt_code, receipt_number
from consent.models import CheckAnswers, ConfigurationChange, ConsentEvent, DataHolder, LevelAccess, Role, Study
from consent.permissions import ROLE_PERMISSIONS
from consent.promises.questions import KEYS
from consent.selectors import consent_form_in_force
from consent.services import check_answer_keep
from consent.services.invitations import invitations_create
from tests import factories
from tests.pages import as_, person_confirm, roles_fill, text, url
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, consents_give, run_draft, study_with_consents, study_with_table
from training.services.datasets import dataset_provenance_state

pytestmark = pytest.mark.django_db

CHECK = "/studies/digits/recruitment/receipt/"
LOOK, LOOKS = "/studies/digits/recruitment/person/", "/studies/digits/recruitment/looks/"


@pytest.fixture
@built_once
def study() -> Study:
    """``P-1`` takes part with low protection; ``P-2`` has not decided."""
    study = roles_fill(factories.study_open())
    services.holders_register(study=study, pseudonyms=["P-1", "P-2"])
    consents_give(study, "L-")
    return study


def test_a_look_shows_the_choice_and_is_on_record_for_the_auditor(study: Study) -> None:
    olga, sent = as_("olga"), {"pseudonym": "P-1", "reason": "They called."}
    assert as_("auditor").post(LOOK, sent).status_code == 403
    for wrong, message in (
        ({"reason": " "}, "Reason: This field is required."),
        ({"pseudonym": "P-9"}, "This pseudonym does not exist in this study"),
    ):
        response = olga.post(LOOK, sent | wrong)
        assert response.status_code == 422
        assert message in text(response) and "LOW" not in text(response)
    assert not LevelAccess.objects.exists()
    page = text(person_confirm(olga, LOOK, sent))
    assert "Consent given: low protection (" in page and "Your look-up was logged." in page
    log = text(as_("auditor").get(LOOKS))
    assert re.search(r"olga\s*P-1\s*They called\.", log)
    assert "low" not in log.lower().replace("follow", ""), "the record does not say what was seen"
    assert "has not decided" in text(person_confirm(olga, LOOK, sent | {"pseudonym": "P-2"}))
    assert LevelAccess.objects.filter(holder__pseudonym="P-2").exists(), "that is a look-up, too"
    factories.form_publish(study, {"en": "More."}, renewal="required")
    page = text(person_confirm(olga, LOOK, sent))
    assert "The consent is suspended until the person has answered the new form." in page
    with connection.cursor() as cursor, pytest.raises(DatabaseError), transaction.atomic():
        cursor.execute("DELETE FROM consent_levelaccess")
    assert list(LevelAccess.chain_faults(study.pk)) == []


@pytest.fixture
def event(study: Study) -> ConsentEvent:
    return ConsentEvent.objects.get()


def test_a_receipt_is_found_by_its_code_and_reveals_no_choice(study: Study, event: ConsentEvent) -> None:
    number = receipt_number(event.hash)
    heard = [receipt_code(number), receipt_code(number).lower().replace("-", " "), number]
    for who, number in product(("olga", "auditor"), heard):
        page = text(as_(who).post(CHECK, {"number": number}))
        assert "The decision is recorded P-1," in page and "This is the person's latest decision." in page
        assert "The record has not been changed." in page
        assert "given" not in page and not re.search(r"\b(low|average|high) protection", page.lower())
    assert not LevelAccess.objects.exists()


def test_refusals_and_consents_look_the_same_and_older_receipts_are_marked(study, event) -> None:
    other = factories.holder_create(study, "P-3")
    refusal = services.consent_refuse(holder=other, form=study.consent_forms.get(), acting_user=None)

    def page_of(row: ConsentEvent) -> str:
        return text(as_("olga").post(CHECK, {"number": receipt_code(receipt_number(row.hash))}))

    found = [re.search("The decision is recorded.*has not been changed", page_of(row)) for row in (event, refusal)]
    consent, refused = (re.sub(r"P-\d, .*?, version", "", each.group()) for each in found if each is not None)
    assert consent == refused
    services.consent_withdraw(holder=event.holder, acting_user=None)
    page = page_of(event)
    assert "This person has decided again since then" in page and "withdr" not in page.split("is recorded")[1]


def test_a_misheard_code_or_a_receipt_of_another_study_is_not_found(study: Study, event: ConsentEvent) -> None:
    groups = receipt_code(receipt_number(event.hash)).split("-")
    groups[1] = groups[1][:4] + ("0" if groups[1][4] != "0" else "1")
    answer = as_("olga").post(CHECK, {"number": " ".join(groups)})
    assert answer.status_code == 422 and f"Group 2 ({groups[1]})" in text(answer)
    assert f'value="{" ".join(groups)}"' in answer.text, "it stays in its field"
    other = factories.study_open("letters")
    holder = factories.holder_create(other, "P-9")
    event = services.consent_give(holder=holder, level="LOW", form=other.consent_forms.get(), acting_user=None)
    answer = as_("olga").post(CHECK, {"number": receipt_code(receipt_number(event.hash))})
    assert answer.status_code == 422 and "This receipt was not found in this study" in text(answer)
    assert "P-9" not in text(answer)


def test_only_people_who_handle_consents_see_exact_numbers(study, monkeypatch) -> None:
    def page_for(role: str) -> str:
        html = as_(role).get("/studies/digits/recruitment/").text
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.replace("</script>", "")))

    for role in ("steward", "auditor"):
        page = page_for(role)
        assert "Asked" in page
        for words in ("Low protection 1", "Over time", "Not for publication."):
            assert words in page, role
    monkeypatch.setitem(ROLE_PERMISSIONS, Role.AUDITOR, ROLE_PERMISSIONS[Role.AUDITOR] - {"consent.view_group_sizes"})
    for role in ("researcher", "operator", "committee", "auditor"):
        assert "Asked" not in page_for(role), "rounded numbers are hidden like exact ones"


@pytest.fixture
@built_once
def changed() -> Study:
    study = roles_fill(study_with_table())
    services.study_update(study=study, acting_user=factories.user_create("olga"), title="Another title")
    public, otto = study.datasets.get(kind="public"), factories.user_create("otto")
    dataset_provenance_state(dataset=public, provenance="From a drawer.", acting_user=otto)
    run_draft(study, **TABLE_RUN)
    holder = DataHolder.objects.filter(study=study).earliest("pk")
    services.holder_link(holder=holder, user=factories.user_create("hanna"))
    invitations_create(study=study, acting_user=factories.user_create("sara"), pseudonyms=["secret-name"])
    return study


def changes(study: Study, name: str, query: str = "") -> str:
    return as_(name).get(reverse("staff:changes", args=[study.slug]) + query).getvalue().decode()


def test_sealed_changes_are_for_auditors_and_name_nobody(changed: Study) -> None:
    page = changes(changed, "auditor", "?record=sealed")
    assert "Sealed changes" in page and "Linked at" in page and "Code" in page
    holder = DataHolder.objects.get(study=changed, user__username="hanna")
    for message in ("hanna", "secret-name", holder.pseudonym):
        assert message not in page
    open_to_her = changes(changed, "committee", "?record=sealed")
    assert "Sealed changes" not in open_to_her and "Linked at" not in open_to_her


def test_changes_are_shown_in_words(changed: Study) -> None:
    page, file = changes(changed, "auditor"), changes(changed, "auditor", "?format=csv")
    assert re.search(r'Created at:\s+<time datetime="', page) and "Columns: length, width; Classes: a, b, c" in page
    assert "Learner for teachers:" in page and "&quot;" not in page.partition("<tbody")[2]
    assert re.search(r"Created at: – → [-\d]+ [:\d]+ UTC", file) and "{" not in file


def test_changes_can_be_downloaded_and_are_shown_despite_tampering(changed: Study) -> None:
    response = as_("auditor").get(reverse("staff:consents_export", args=[changed.slug, "json"]))
    exported = json.loads(b"".join(response.streaming_content))  # type: ignore[attr-defined]
    recorded = list(ConfigurationChange.chain(changed.pk).values_list("hash", flat=True))
    assert [row["hash"] for row in exported["changes"]] == recorded != []
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE consent_configurationchange SET row = 'x' WHERE model = 'training.run'")
        cursor.execute("UPDATE consent_configurationchange SET model = 'no.such' WHERE model = 'training.dataset'")
        after = json.dumps({"no_such": 1})
        cursor.execute("UPDATE consent_configurationchange SET after = %s WHERE model = 'consent.study'", [after])
    assert "No_such" in changes(changed, "auditor")


@pytest.fixture
def table() -> Study:
    """Return a study in which ten holders have consented to each level."""
    return study_with_table()


@pytest.fixture
def operator(table: Study) -> Client:
    return as_("olga")


def counted(counting: Study) -> dict[str, int]:
    return {count.level: count.count for count in head_counts(counting)}


def test_the_page_says_what_a_drawing_costs_and_shows_what_was_drawn(table, operator, monkeypatch) -> None:
    HeadCount.objects.all().delete()
    address = url("head_counts", table)
    assert "uses 1.0 % of the smallest cap (free: 100.0 %)" in operator.get(address).text
    assert Release.objects.filter(study=table).count() == 1, "opening the page draws nothing"
    follows = re.search(r'name="follows" value="(\d*)"', operator.get(address).text).group(1)
    page = operator.post(address, {"draw": "1", "follows": follows}, follow=True)
    assert page.redirect_chain == [(address, 302)]
    operator.post(address, {"draw": "1", "follows": follows})
    assert Release.objects.filter(study=table).count() == 2, "a form sent twice draws once"
    assert share_free(table) == pytest.approx(0.99)
    drawn = head_counts(table)
    assert {count.sigma for count in drawn} == {32.0} and "taken with noise, standard deviation 32" in page.text
    assert all(f'<td class="number">{count.count}</td>' in page.text for count in drawn)
    assert "± 32, taken with noise" in operator.get(url("study", table)).text
    monkeypatch.setitem(ROLE_PERMISSIONS, "operator", ROLE_PERMISSIONS["operator"] - {"consent.view_group_sizes"})
    page = operator.get(address).text
    assert all(f'<td class="number">{count.count}</td>' in page for count in drawn), "instead of exact numbers"


@pytest.fixture
@built_once
def counting() -> Study:
    return roles_fill(study_with_consents("checks"))


def test_an_operator_counts_once_and_answers_are_cleared(counting: Study) -> None:
    """A second click would charge everybody again, and different noise would replace the counts."""
    forms, address = url("consent_forms", counting), reverse("staff:check_answers", args=[counting.slug])
    committee, operator = as_("committee"), as_("olga")
    assert "Count the answers" not in text(committee.get(forms))
    assert committee.post(address).status_code == 403
    assert not Release.objects.exists()
    check_answer_keep(holder=counting.holders.earliest("pk"), form=consent_form_in_force(counting), place=0, right=True)
    page = operator.get(forms)
    assert "noise with standard deviation 76 to each number. This uses 1.0 % of the smallest cap" in text(page)
    follows = re.search(r'name="follows" value="(\d+)"', page.text).group(1)
    answer = operator.post(address, {"follows": follows}, follow=True)
    assert answer.redirect_chain == [(forms, 302)]
    assert "The answers have been counted and are no" in text(answer)
    assert "so no new ones were taken." in text(operator.post(address, {"follows": follows}, follow=True))
    assert CheckAnswers.objects.get().answered == 0
    assert Release.objects.filter(study=counting).count() == 1
    assert share_free(counting) == pytest.approx(0.99)
    assert "answers to check questions" in text(operator.get(url("ledger", counting)))
    assert "Answers have been counted before" in text(operator.get(forms))


def test_no_page_says_how_many_answers_are_stored(counting: Study) -> None:
    form, pages = consent_form_in_force(counting), set()
    for place, holder in enumerate([None, *counting.holders.order_by("pk")[:4]]):
        if holder is not None:
            check_answer_keep(holder=holder, form=form, place=place % len(KEYS), right=bool(place % 2))
        page = as_("olga").get(url("consent_forms", counting)).text
        pages.add(re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page))
    assert len(pages) == 1
    early = factories.study_create("early")
    assert "What people understand" not in text(as_("olga").get(url("consent_forms", early))), "there is no form"
