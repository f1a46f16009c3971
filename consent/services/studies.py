"""Studies: creation, changes, and the settings that are fixed once holders can decide."""

from collections.abc import Iterable
from copy import copy
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from common.append_only import chains_begin
from common.journal import is_noted
from common.models import row_add
from consent.models import Membership, Role, Study, study_lock
from consent.selectors import consent_form_in_force, policy_in_force
from consent.services.changes import changes_recorded
from consent.services.memberships import membership_add, membership_give
from consent.wording.facts import FACTS, TRANSLATED_FACTS, facts_of, languages_of_facts

#: Short names that would hide a page of the site.
_RESERVED_SLUGS = frozenset({"new"})


def study_slug_check(slug: str) -> None:
    """Check that a study with this short name would not have the same URL as a page of the site.

    Raises:
        ValidationError: the URL is taken.
    """
    if slug in _RESERVED_SLUGS:
        raise ValidationError(_("This name is reserved. Choose another."))


@transaction.atomic
def study_create(
    *, acting_user: AbstractBaseUser, members: Iterable[tuple[AbstractBaseUser, str]] = (), **fields: Any
) -> Study:
    """Create a study whose operator (and, in a rehearsal study, data steward) is the acting user.

    Args:
        members: Other people, each with the role that they get or are proposed for.
        **fields: Fields of the study.

    Raises:
        ValidationError: a field is invalid (errors by field), or someone cannot have their role.
        PermissionDenied: ``members`` includes a role that operators cannot give.
    """
    study = Study(**fields)
    try:
        study_slug_check(study.slug)
    except ValidationError as error:
        raise ValidationError({"slug": error}) from error
    study.full_clean()
    with changes_recorded([study], acting_user=acting_user):
        study_begin(study)
    for role in (Role.OPERATOR, Role.STEWARD) if study.rehearsal else (Role.OPERATOR,):
        membership_give(Membership(study=study, user_id=acting_user.pk, role=role), acting_user)
    for user, given in members:
        membership_add(study=study, user=user, role=given, acting_user=acting_user)
    return study


def study_begin(study: Study) -> None:
    """Save a new study under a number that is not in the journal, and begin its chains.

    A restored database reuses the numbers of lost studies, whose journal entries and locks must not apply to the new
    study.
    """
    row_add(study)
    while is_noted(study.pk):
        study.delete()  # this does not free the number
        study.save(force_insert=True)
    chains_begin(study.pk)


def study_asks_check(study: Study) -> None:
    """Refuse to ask people in a closed study, or in a rehearsal study, which has no accounts for them.

    Raises:
        ValidationError: the study does not ask people.
    """
    if study.rehearsal:
        raise ValidationError(_("A rehearsal study does not ask people for consent. Create another study for that."))
    study_open_check(study)


def study_open_check(study: Study) -> None:
    """Raise ValidationError if the study is closed."""
    if study.is_closed:
        raise ValidationError(_("This study is closed. It no longer invites people, stores new data or trains models."))


def is_study_fixed(study: Study) -> bool:
    """Return whether holders can or once could decide, that is, whether a form and an ε policy are or were in force."""
    return are_facts_fixed(study) and policy_in_force(study) is not None


def are_facts_fixed(study: Study) -> bool:
    """Return whether the study's facts belong to a consent form version, so that only a new version can change them."""
    return consent_form_in_force(study) is not None


def study_fixed(study: Study) -> list[str]:
    """Return the names of settings that can no longer change, including the fields for texts in other languages."""
    if not are_facts_fixed(study):
        return []
    codes = dict.fromkeys([*(code for code, _name in settings.LANGUAGES), *languages_of_facts(study)])
    translated = [f"{name}_{code}" for code in codes if code != settings.LANGUAGE_CODE for name in TRANSLATED_FACTS]
    return [*FACTS, *(["delta"] if is_study_fixed(study) else []), *translated]


@transaction.atomic
def study_update(*, study: Study, acting_user: AbstractBaseUser | None = None, **fields: Any) -> Study:
    """Change the settings of a study, and record this.

    Args:
        acting_user: the user who changes them; None at the command line.
        **fields: new values.

    Raises:
        ValidationError: a value is invalid, or the change concerns facts of the consent form in force, δ once holders
            can decide, or whether the study is a rehearsal.
    """
    study = study_lock(study.pk)
    if fields.get("rehearsal", study.rehearsal) != study.rehearsal:
        message = _("You can only make a study a rehearsal when you create it. Create another study instead.")
        raise ValidationError({"rehearsal": message})
    draft = copy(study)
    for name, value in fields.items():
        setattr(draft, name, value)
    if are_facts_fixed(study) and (changed := _facts_differing(facts_of(study), facts_of(draft))):
        message = _(
            "This information belongs to the version of the consent form that people read. To change it, propose a "
            "new version, which a second person has to approve."
        )
        raise ValidationError({name if name in fields else "translations": message for name in changed})
    if is_study_fixed(study) and fields.get("delta", study.delta) != study.delta:
        message = _(
            "A consent form and an ε policy are in force. Data holders base their decisions on this δ, so it can no "
            "longer be changed. Create a new study instead."
        )
        raise ValidationError({"delta": message})
    if is_study_fixed(study) and any(_harm(draft).get(code) != text for code, text in _harm(study).items()):
        message = _(
            "A consent form and an ε policy are in force. Data holders base their decisions on this text and this δ, "
            "so neither the text nor δ can be changed any more. Create a new study instead."
        )
        raise ValidationError({"harm": message})
    for name, value in fields.items():
        setattr(study, name, value)
    study.full_clean()
    with changes_recorded([study], acting_user=acting_user):
        study.save()
    return study


def _harm(study: Study) -> dict[str, str]:
    """Return the example of harm in every language that has one."""
    harm = {code: texts["harm"] for code, texts in study.translations.items() if texts.get("harm")}
    return {settings.LANGUAGE_CODE: study.harm, **harm}


def _facts_differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of facts that differ, including texts in added languages."""
    return [name for name in before if before[name] != after[name]]
