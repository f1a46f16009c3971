"""Ready-made people and studies, made through the services as the site makes them."""

from typing import Any

from django.contrib.auth.models import User

from consent import services
from consent.models import ConsentForm, ConsentFormProposal, DataHolder, EpsilonPolicy, Renewal, Role, Study
from tests.snapshots import built_once

PASSWORD = "correct horse battery staple"
FORM = {
    "en": "# What we ask\nWe would like to learn from your records how to **read handwriting**.",
    "de": "# Worum wir bitten\nWir möchten aus Ihren Daten lernen, wie man **Handschrift** liest.",
}


def user_create(name: str, **fields: Any) -> User:
    """A user called ``name``, made once, who signs in with ``PASSWORD``."""
    return User.objects.filter(username=name).first() or User.objects.create_user(name, password=PASSWORD, **fields)


def study_create(slug: str = "digits", **fields: Any) -> Study:
    """A study that asks nothing yet, whose operator and data steward is ``olga``."""
    defaults: dict[str, Any] = {
        "title": f"Study {slug}",
        "purpose": "Learn to read handwritten digits.",
        "controller": "University Hospital",
        "contact": "study@example.org",
        "delta": 1e-5,
    }
    olga = user_create("olga")
    study = services.study_create(acting_user=olga, slug=slug, **{**defaults, **fields})
    services.membership_add(study=study, user=olga, role=Role.STEWARD, acting_user=None)
    return study


def form_propose(study: Study, texts: dict[str, str], renewal: str = Renewal.REQUIRED) -> ConsentFormProposal:
    """A version that asks holders again, proposed by ``olga``."""
    return services.consent_form_propose(study=study, acting_user=user_create("olga"), texts=texts, renewal=renewal)


def form_publish(
    study: Study,
    texts: dict[str, str] | None = None,
    renewal: str = Renewal.NOT_ASKED,
    valid: services.Valid = services.FOR_GOOD,
) -> ConsentForm:
    """A version that ``olga`` published, or proposed and ``conrad`` approved where it asks holders again."""
    olga, texts = user_create("olga"), texts or FORM
    if renewal == Renewal.NOT_ASKED:
        return services.consent_form_publish(study=study, acting_user=olga, texts=texts, valid=valid)
    proposal = services.consent_form_propose(study=study, acting_user=olga, texts=texts, renewal=renewal, valid=valid)
    return services.consent_form_approve(proposal=proposal, acting_user=user_create("conrad"))


def policy_approve(
    study: Study, high: float = 1.0, average: float = 2.0, low: float = 3.0, **approval: Any
) -> EpsilonPolicy:
    """A policy that ``carla`` proposed and ``conrad`` approved, in force at once unless ``effective_from`` is given."""
    policy = services.epsilon_policy_propose(
        study=study, acting_user=user_create("carla"), high=high, average=average, low=low, reason="As others do."
    )
    services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"), **approval)
    return policy


@built_once
def study_open(slug: str = "digits", **fields: Any) -> Study:
    """A study with a published form and an approved policy: holders can decide."""
    study = study_create(slug, **fields)
    form_publish(study)
    policy_approve(study)
    return study


def holder_create(study: Study, pseudonym: str = "P-1", user: User | None = None) -> DataHolder:
    """A registered holder; with ``user``, one who can sign in and decide."""
    services.holders_register(study=study, pseudonyms=[pseudonym])
    holder = DataHolder.objects.get(study=study, pseudonym=pseudonym)
    return services.holder_link(holder=holder, user=user) if user else holder
