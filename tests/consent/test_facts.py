"""Facts belong to versions of a study's form: they are complete and consistent, and changing them takes two people."""

from datetime import date, timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.text import capfirst

from common.append_only import triggers_remove
from consent import selectors, services
from consent.documents.letters import FormsOnPaper, FormWritten
from consent.models import ConsentForm, ConsentFormProposal, Mail, Remark, Renewal, Role, Study
from consent.promises.status import holder_status
from consent.services.consent_forms import OBJECTION_DAYS, form_faults
from consent.wording.facts import fact_label, fact_words, facts_missing, facts_of
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import words
from tests.factories import user_create
from tests.pages import as_, text
from training.verification import checks_of

TYPO = {"en": "# What we ask\nWe would like to learn from your recrods how to **read handwriting**."}
CORRECT = {"en": "# What we ask\nWe would like to learn from your records how to **read handwriting**."}


@pytest.fixture
def study(clock: Clock, db: None) -> Study:
    """Return a study in force with a spelling mistake; ``carla`` and ``conrad`` are the ethics committee."""
    study = factories.committee_fill(factories.study_create())
    factories.form_publish(study, TYPO)
    factories.policy_approve(study)
    return study


def correct(study: Study, texts: dict[str, str] = CORRECT) -> ConsentFormProposal:
    return services.consent_form_correct(study=study, acting_user=user_create("olga"), texts=texts)


UNSAID = {
    "controller_address": "Controller's address",
    "data_categories": "Which data",
    "data_source": "Source of the data",
    "without_recipients": "Who else sees raw records",
    "retention": "How long records are kept",
    "without_officer": "Data protection officer",
    "supervisory_authority": "Supervisory authority",
}


def test_a_study_opens_only_with_complete_information(db: None) -> None:
    study = factories.study_create(**{name: False if name.startswith("without") else "" for name in UNSAID})
    assert {missing.label for missing in facts_missing(study)} == set(UNSAID.values())
    page = as_("olga").get(reverse("staff:consent_form_new", args=[study.slug])).text
    for name in UNSAID:
        field = {"without_recipients": "recipients", "without_officer": "data_protection_officer"}.get(name, name)
        assert f'/studies/digits/edit/?field={field}#id_{field}"' in page, "the list links to the field"
        assert f'id="id_{field}"' in as_("olga").get(f"/studies/digits/edit/?field={field}").text
    for name, label in UNSAID.items():
        services.study_update(study=study, **factories.FACTS | {name: False if name.startswith("without") else ""})
        with pytest.raises(ValidationError, match=f"you must also tell people: {label}"):
            factories.form_publish(study)
    factories.policy_approve(study)
    assert not services.is_study_fixed(study)
    other = factories.study_create("other-law", lawful_basis="other")
    assert [missing.field for missing in facts_missing(other)] == ["jurisdiction"]
    assert facts_missing(factories.study_create("try", rehearsal=True, controller_address="")) == []


ALLIANCE = {"name": "Wards", "hub": "The Example Hub", "sites": ["Ward A", "Ward B"], "digest": "ab"}


@pytest.mark.parametrize("language", ["en", "de"])
def test_page_and_paper_tell_every_fact_before_anybody_decides(db: None, language: str) -> None:
    """This includes the studies with which it learns together, because it would be too late on a receipt."""
    told = {"data_protection_officer": "Dr. D.", "recipients": "The archive", "jurisdiction": "Utopia"}
    study = factories.study_open(**told, retention_until=date(2050, 12, 31), alliance=ALLIANCE)
    factories.holder_create(study, user=user_create("hanna"))
    browser = as_("hanna")
    browser.cookies["django_language"] = language
    with translation.override(language):
        behaviour = {fact_label(name) for name in ("after_withdrawal", "after_death", "after_incapacity")}  # sentences
        wanted = [said for label, said in fact_words(study) if label not in behaviour]
        paper = words(FormsOnPaper(study).context(FormWritten(language))["reading"])
    page = unescape(text(browser.get(reverse("consent:study", args=[study.slug]))))
    for where in (page, paper):
        assert [said for said in wanted if said not in where and capfirst(said) not in where] == []


def test_facts_do_not_contradict_each_other_or_the_text(db: None) -> None:
    study = factories.study_create()
    for fields in ({"recipients": "The archive."}, {"data_protection_officer": "Dr. D."}):
        with pytest.raises(ValidationError, match="but not both"):
            services.study_update(study=study, **fields, without_recipients=True, without_officer=True)
    named = ["Our processor Acme stores it.", "Acme, our service provider, stores it."]
    named += ["Acme ist unser Auftragsverarbeiter.", "Der Dienstleister Acme speichert es."]
    for sentence in named:
        with pytest.raises(ValidationError, match="but according to the facts no one else sees"):
            factories.form_publish(study, {"en": sentence})
    services.study_update(study=study, recipients="Acme, which stores them.", without_recipients=False)
    for sentence in named:
        assert factories.form_publish(study, {"en": sentence}).facts["recipients"] == "Acme, which stores them."


def test_nobody_publishes_what_they_proposed_not_even_the_first_version(db: None) -> None:
    study, olga = factories.study_create(), user_create("olga")
    proposal = services.consent_form_propose(study=study, acting_user=olga, texts=TYPO)
    with pytest.raises(ValidationError, match="You proposed this form, so a second person"):
        services.consent_form_approve(proposal=proposal, acting_user=olga)
    assert selectors.consent_form_in_force(study) is None
    services.study_update(study=study, contact="else@example.org")
    with pytest.raises(ValidationError, match="settings have changed"):
        services.consent_form_approve(proposal=proposal, acting_user=user_create("conrad"))


@pytest.mark.parametrize(
    ("changed", "label", "says"),
    [
        ({"recipients": "Acme.", "without_recipients": False}, "Who else sees raw records", "Acme."),
        ({"alliance": ALLIANCE}, "Learning together", "Together with Ward A, Ward B. The Example Hub asks"),
    ],
)
def test_changed_facts_need_a_version_that_asks_again(study, holder, give, changed, label, says) -> None:
    event = give(holder, "HIGH")
    facts, before = facts_of(study) | changed, facts_of(study)
    for renewal in (Renewal.NOT_ASKED, Renewal.ASKED):
        with pytest.raises(ValidationError, match=rf"People consented to different facts \({label}"):
            factories.form_publish(study, CORRECT, renewal=renewal, facts=facts)
    form = factories.form_publish(study, CORRECT, renewal=Renewal.REQUIRED, facts=facts)
    study.refresh_from_db()
    assert facts_of(study) == form.facts == facts and event.form.facts == before
    assert not holder_status(holder).counts
    page = text(as_("hanna").get(reverse("consent:choice", args=[study.slug])))
    assert "What has changed" in page and says in page
    assert list(form_faults(study)) == []


def test_the_last_day_can_only_be_brought_forward_and_the_contact_changes_freely(db: None) -> None:
    study = factories.study_create(retention_until=timezone.localdate() + timedelta(days=100))
    factories.form_publish(study, TYPO)
    for later in ((timezone.localdate() + timedelta(days=200)).isoformat(), None):
        with pytest.raises(ValidationError, match="People were promised that their records"):
            factories.form_publish(study, TYPO, Renewal.REQUIRED, facts=facts_of(study) | {"retention_until": later})
    factories.form_publish(study, TYPO, facts=facts_of(study) | {"contact": "new@example.org"})
    study.refresh_from_db()
    assert study.contact == "new@example.org", "no new consent is needed"


def test_a_small_correction_is_announced_and_takes_effect_automatically(study, give, clock) -> None:
    holder = factories.holder_create(study, user=user_create("hanna"))
    give(holder, "HIGH")
    proposal = correct(study)
    kinds = ("correction", "form_waiting")
    mails = set(Mail.objects.filter(about=str(proposal.pk), kind__in=kinds).values_list("kind", "user__username"))
    assert mails == {("correction", "hanna"), ("form_waiting", "carla"), ("form_waiting", "conrad")}
    choice = text(as_("hanna").get(reverse("consent:choice", args=[study.slug])))
    assert "we will correct a few words in the information" in choice and "recrods" in choice
    with pytest.raises(ValidationError, match="A correction takes effect automatically unless"):
        services.consent_form_approve(proposal=proposal, acting_user=user_create("conrad"))
    clock.days_pass(OBJECTION_DAYS - 1)
    assert services.corrections_publish() == 0
    clock.days_pass(2)
    assert services.corrections_publish() == 1
    assert services.corrections_publish() == 0
    form = selectors.consent_form_in_force(study)
    assert (form.version, form.texts, form.published_by, form.renewal) == (2, CORRECT, None, Renewal.NOT_ASKED)
    assert holder_status(holder).counts and not holder_status(holder).needs_decision
    assert list(form_faults(study)) == [] and list(ConsentForm.chain_faults(study.pk)) == []


def test_an_objection_stops_a_correction_and_somebody_must_be_able_to_object(study: Study, clock: Clock) -> None:
    proposal = correct(study)
    page = reverse("staff:consent_form_proposal", args=[study.slug, proposal.sequence])
    assert as_("olga").post(page, {"text": "Stop.", "reject": "1"}).status_code == 403
    shown = text(as_("conrad").get(page))
    assert "A small correction: the facts stay the same," in shown and "Publish form" not in shown
    as_("conrad").post(page, {"text": "Say more.", "reject": "1"})
    assert Remark.objects.latest("sequence").kind == Remark.Kind.REJECTION
    clock.days_pass(OBJECTION_DAYS + 2)
    assert services.corrections_publish() == 0
    assert selectors.consent_form_in_force(study).version == 1
    for member in study.memberships.filter(role=Role.COMMITTEE):
        member.delete()
    with pytest.raises(ValidationError, match="You are the only member of the ethics committee,"):
        correct(study)


def test_a_correction_is_dropped_if_superseded_but_not_if_its_proposer_has_left(study: Study, clock: Clock) -> None:
    other, third = factories.study_create("other"), factories.study_create("third")
    for each in (other, third):
        factories.form_publish(factories.committee_fill(each), TYPO)
    services.consent_form_correct(study=study, acting_user=user_create("paul"), texts=CORRECT)
    correct(other)
    correct(third)
    factories.form_publish(third, {"en": "Something else."})
    User.objects.get(username="paul").delete()
    clock.days_pass(OBJECTION_DAYS + 2)
    assert services.corrections_publish() == 2
    assert selectors.consent_form_in_force(third).texts == {"en": "Something else."}
    connection.check_constraints()


LONG = "The clinic, the ward, your doctor and the nurses see it; a shop, a bank, an insurer and the press see none."
TURNED = "A shop, a bank, an insurer and the press see it; the clinic, the ward, your doctor and the nurses see none."


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (TYPO["en"], CORRECT["en"].replace("would", "would never"), "never"),
        (TYPO["en"], CORRECT["en"].replace("your", "your 12"), "12"),
        (TYPO["en"], CORRECT["en"].replace("like", "like our processor"), "no one else"),
        (TYPO["en"], "# What we ask\nThe press and its readers may look at all records.", "More than 3 words"),
        ("We look at it. We do not sell it.", "We do not look at it. We sell it.", "not"),
        ("You can say no. We can't ask why.", "You can say no. We can ask why.", "can't"),
        (LONG, TURNED, "More than 3 words"),
    ],
)
def test_a_change_of_meaning_is_not_a_correction(study: Study, before: str, after: str, says: str) -> None:
    if before != TYPO["en"]:
        factories.form_publish(study, {"en": before})
    proposals = ConsentFormProposal.objects.count()
    with pytest.raises(ValidationError, match=says):
        correct(study, {"en": after})
    assert ConsentFormProposal.objects.count() == proposals


def test_a_fact_that_was_edited_past_the_form_is_found(study: Study) -> None:
    Study.objects.filter(pk=study.pk).update(recipients="The press.", without_recipients=False)
    study.refresh_from_db()
    found = [fault.split(":")[0] for fault in form_faults(study)]
    assert found == ["the study's recipients", "the study's without_recipients"]
    (check,) = [check for check in checks_of(study) if check.name.startswith("forms match")]
    assert len(list(check.find())) == 2


def test_facts_of_a_version_are_part_of_its_hash_and_digest(study: Study) -> None:
    triggers_remove(connection)
    form = study.consent_forms.get()
    models.QuerySet(ConsentForm).filter(pk=form.pk).update(facts=form.facts | {"recipients": "The press."})
    assert len(list(ConsentForm.chain_faults(study.pk))) == 1
    assert any("its digest does not match its texts and facts" in fault for fault in form_faults(study))
