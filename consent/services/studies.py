"""Studies: set up, changed, and what is fixed once holders can decide."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from common.append_only import chains_begin
from consent.locks import study_lock
from consent.models import Membership, Role, Study
from consent.selectors import consent_form_in_force, policy_in_force
from consent.services.changes import changes_recorded
from consent.services.memberships import membership_add, membership_give

#: Short names that would hide a page of the site.
_RESERVED_SLUGS = frozenset({"new"})


def study_slug_check(slug: str) -> None:
    """Check that no page of the site has the address that a study of this short name would have.

    Raises:
        ValidationError: one has.
    """
    if slug in _RESERVED_SLUGS:
        raise ValidationError(_("This name is taken by the site itself. Choose another."))


@transaction.atomic
def study_create(
    *, acting_user: AbstractBaseUser, members: Iterable[tuple[AbstractBaseUser, str]] = (), **fields: Any
) -> Study:
    """A new study; the acting user becomes its operator, in a rehearsal study its data steward, too.

    Args:
        acting_user: Who creates it.
        members: Other people with the role that each of them gets, or is proposed for.
        **fields: Of the study.

    Raises:
        ValidationError: by field, or a role that somebody cannot have.
        PermissionDenied: a role that operators do not give.
    """
    study = Study(**fields)
    try:
        study_slug_check(study.slug)
    except ValidationError as error:
        raise ValidationError({"slug": error}) from error
    study.full_clean()
    with changes_recorded([study], acting_user=acting_user):
        study.save()
        chains_begin(study.pk)
    for role in (Role.OPERATOR, Role.STEWARD) if study.rehearsal else (Role.OPERATOR,):
        membership_give(Membership(study=study, user_id=acting_user.pk, role=role), acting_user)
    for user, given in members:
        membership_add(study=study, user=user, role=given, acting_user=acting_user)
    return study


def study_asks_check(study: Study) -> None:
    """Refuse to ask people in a closed study, or in a rehearsal study, which keeps no accounts for them.

    Raises:
        ValidationError: the study asks nobody.
    """
    if study.rehearsal:
        raise ValidationError(_("A rehearsal study asks nobody. Set up another study for people's consents."))
    study_open_check(study)


def study_open_check(study: Study) -> None:
    """Refuse what a closed study does not do any more. Raises ValidationError."""
    if study.is_closed:
        raise ValidationError(_("This study is closed: it asks nobody, stores nothing new, and learns nothing more."))


#: What holders are told when they decide, and what their budgets rest on: fixed once a form and a policy are in force.
#: Whether anybody has decided yet is never told by it.
FIXED_BY_CONSENT = (
    "purpose",
    "controller",
    "data_categories",
    "recipients",
    "retention",
    "after_withdrawal",
    "lawful_basis",
    "jurisdiction",
    "after_death",
    "after_incapacity",
    "delta",
)

#: Of these a text or day that was stated cannot change; what was left open can be stated later.
STATED_ONCE = ("data_source", "retention_until")


def is_study_fixed(study: Study) -> bool:
    """Whether holders can or could decide: a consent form and an ε policy are in force, or were once."""
    return consent_form_in_force(study) is not None and policy_in_force(study) is not None


def study_fixed(study: Study) -> list[str]:
    """Names of what cannot change any more, as holders can decide; of translations with their language."""
    if not is_study_fixed(study):
        return []
    stated = [name for name in STATED_ONCE if getattr(study, name)]
    fixed = {*FIXED_BY_CONSENT, *STATED_ONCE}
    told = [(name, code) for code, texts in study.translations.items() for name in texts if name in fixed]
    return [*FIXED_BY_CONSENT, *stated, *(f"{name}_{code}" for name, code in told)]


def _relied_on(study: Study, fields: Mapping[str, Any]) -> list[str]:
    """Names of those of ``fields`` that would change what holders rely on when they decide.

    A translation can be added, and one that is there is as fixed as what it translates.
    """
    changed = [name for name in fields if name != "translations" and fields[name] != getattr(study, name)]
    fixed = [name for name in changed if name in FIXED_BY_CONSENT and name not in STATED_ONCE]
    fixed += [name for name in changed if name in STATED_ONCE and getattr(study, name)]
    for language, texts in study.translations.items() if "translations" in fields else ():
        for name, text in texts.items():
            now = fields["translations"].get(language, {}).get(name, "")
            if text != now and (name in FIXED_BY_CONSENT or name in STATED_ONCE):
                fixed.append(f"{name}_{language}")
    return fixed


@transaction.atomic
def study_update(*, study: Study, acting_user: AbstractBaseUser | None = None, **fields: Any) -> Study:
    """Change the settings of a study, on record.

    Args:
        study: the study.
        acting_user: who changes them; None at the command line.
        **fields: what changes.

    Raises:
        ValidationError: an invalid value, or a change of what holders rely on when they decide, or of whether the study
            is a rehearsal.
    """
    study = study_lock(study.pk)
    if fields.get("rehearsal", study.rehearsal) != study.rehearsal:
        message = _("Whether a study is a rehearsal is decided when it is set up. Set up another study instead.")
        raise ValidationError({"rehearsal": message})
    if is_study_fixed(study):
        fixed = _relied_on(study, fields)
        if fixed:
            message = _(
                "A consent form and an ε policy are in force: holders decide on these words and this δ, which cannot "
                "change any more. Begin a new study instead."
            )
            known = {name if name in fields else "translations" for name in fixed}
            raise ValidationError(dict.fromkeys(sorted(known), message))
    for name, value in fields.items():
        setattr(study, name, value)
    study.full_clean()
    with changes_recorded([study], acting_user=acting_user):
        study.save()
    return study
