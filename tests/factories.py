"""Ready-made people and studies, created through the services as on the site."""

from typing import Any

from django.contrib.auth.models import User

from consent import services
from consent.models import ConsentEvent, ConsentForm, ConsentFormProposal, DataHolder, EpsilonPolicy, Renewal, Study
from consent.selectors import promise_last
from tests.snapshots import built_once

PASSWORD = "correct horse battery staple"
FORM = {
    "en": "# What we ask\nWe would like to learn from your records how to **read handwriting**.",
    "de": "# Worum wir bitten\nWir möchten aus Ihren Daten lernen, wie man **Handschrift** liest.",
}
HARM = {
    "en": "Your insurer knows all about you but one illness. It guesses from what is released, and asks for more.",
    "de": "Ihre Versicherung weiß alles über Sie außer einer Krankheit. Sie rät danach und verlangt mehr Geld.",
}


#: Required information except purpose and controller (GDPR, Articles 13 and 14).
FACTS: dict[str, Any] = {
    "controller_address": "Hospital Road 1, Exampletown",
    "data_categories": "Digits that you wrote.",
    "data_source": "Your treatment at our clinic.",
    "without_recipients": True,
    "retention": "Until the study ends.",
    "without_officer": True,
    "supervisory_authority": "The Data Protection Authority, Exampletown.",
}


def user_create(name: str, **fields: Any) -> User:
    """Return a user called ``name``, created once, who signs in with ``PASSWORD``."""
    return User.objects.filter(username=name).first() or User.objects.create_user(name, password=PASSWORD, **fields)


@built_once
def study_create(slug: str = "digits", **fields: Any) -> Study:
    """Return a study that does not ask people yet, with ``olga`` as operator and data steward."""
    defaults: dict[str, Any] = {
        "title": f"Study {slug}",
        "purpose": "Learn to read handwritten digits.",
        "controller": "University Hospital",
        "contact": "study@example.org",
        "delta": 1e-5,
        **FACTS,
        "harm": HARM["en"],
    }
    if fields.get("recipients"):
        defaults["without_recipients"] = False
    if fields.get("data_protection_officer"):
        defaults["without_officer"] = False
    for code in [each for each in fields.get("languages", ()) if each != "en"]:
        given = fields.get("translations", {})
        fields["translations"] = {**given, code: {"harm": HARM.get(code, HARM["en"]), **given.get(code, {})}}
    study = services.study_create(acting_user=user_create("olga"), slug=slug, **{**defaults, **fields})
    return members_add(study, olga="steward")


def members_add(study: Study, **roles: str) -> Study:
    """Return the same study with these people in these roles; their accounts are created if necessary."""
    for name, role in roles.items():
        member(study, name, role)
    return study


def member(study: Study, name: str, role: str, acting_user: User | None = None) -> User:
    """Return someone called ``name`` with a role in the study; if given by ``acting_user``, it may be pending."""
    user = user_create(name)
    services.membership_add(study=study, user=user, role=role, acting_user=acting_user)
    return user


def form_propose(study: Study, texts: dict[str, str], renewal: str = Renewal.REQUIRED) -> ConsentFormProposal:
    """Return a version proposed by ``olga``."""
    return services.consent_form_propose(study=study, acting_user=user_create("olga"), texts=texts, renewal=renewal)


def form_publish(
    study: Study,
    texts: dict[str, str] | None = None,
    renewal: str = Renewal.NOT_ASKED,
    valid: services.Valid = services.FOR_GOOD,
    facts: dict[str, Any] | None = None,
) -> ConsentForm:
    """Return a version proposed by ``olga`` and approved by ``conrad``."""
    proposal = services.consent_form_propose(
        study=study, acting_user=user_create("olga"), texts=texts or FORM, renewal=renewal, valid=valid, facts=facts
    )
    return services.consent_form_approve(proposal=proposal, acting_user=user_create("conrad"))


def policy_approve(
    study: Study, high: float = 1.0, average: float = 2.0, low: float = 3.0, **approval: Any
) -> EpsilonPolicy:
    """Return a policy proposed by ``carla`` and approved by ``conrad``, in force at once or from ``effective_from``."""
    policy = services.epsilon_policy_propose(
        study=study,
        acting_user=user_create("carla"),
        high=high,
        average=average,
        low=low,
        reason="As others do.",
        name_reason="The names are those of other studies.",  # stored if a name promises too much
    )
    services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"), **approval)
    return policy


@built_once
def study_open(slug: str = "digits", **fields: Any) -> Study:
    """Return a study with a published form and an approved policy, so that holders can decide."""
    study = study_create(slug, **fields)
    form_publish(study)
    policy_approve(study)
    return study


def study_with_sender() -> Study:
    """Return an open study that states the sender of its letters and contact in two languages."""
    return study_open(
        title="Early signs",
        controller_address="1 Hospital Road\n12345 Town",
        contact_name="Dr Ada Example",
        contact_telephone="+49 30 1234",
        contact_hours="Monday to Friday, 9 to 12",
        translations={"de": {"title": "Frühe Zeichen", "contact_hours": "montags bis freitags, 9 bis 12 Uhr"}},
    )


def committee_fill(study: Study) -> Study:
    """Return the same study with ``carla`` and ``conrad`` as its ethics committee."""
    return members_add(study, carla="committee", conrad="committee")


def decide(holder: DataHolder, level: str) -> ConsentEvent:
    """Record a consent to the newest form."""
    form = ConsentForm.objects.filter(study=holder.study_id).latest("version")
    return consent_choose(holder=holder, level=level, form=form)


def consent_choose(*, holder: DataHolder, level: str, **fields: Any) -> ConsentEvent:
    """Record a consent that accepts whatever the level means now, even if weaker than the promise."""
    last = promise_last(holder)
    fields = {"acting_user": None, "accepts_weaker_than": last.epsilon if last else None, **fields}
    return services.consent_give(holder=holder, level=level, **fields)


def holder_create(study: Study, pseudonym: str = "P-1", user: User | None = None) -> DataHolder:
    """Return a registered holder; with ``user``, one who can sign in and decide."""
    services.holders_register(study=study, pseudonyms=[pseudonym])
    holder = DataHolder.objects.get(study=study, pseudonym=pseudonym)
    return services.holder_link(holder=holder, user=user) if user else holder
