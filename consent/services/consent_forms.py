"""Consent forms: drafted, checked, published, or proposed and approved."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.circumstances import day_of
from consent.languages import own_name
from consent.locks import study_lock
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, Renewal, Study
from consent.permissions import members_with_permission
from consent.second_person import second_person_check
from consent.services.mail import holders_mail, mails_send
from consent.services.remarks import not_rejected_check
from consent.services.studies import study_asks_check, study_open_check
from consent.services.webhooks import event_send
from consent.study_texts import texts_missing


@dataclass(frozen=True)
class Valid:
    """Time for which a consent to a version counts: so many months, up to a day and with it, or for good."""

    months: int | None = None
    until: date | None = None

    @classmethod
    def of(cls, form: ConsentForm | ConsentFormProposal) -> "Valid":
        return cls(form.valid_months, form.valid_until)


FOR_GOOD = Valid()


def _texts_given(texts: Mapping[str, str]) -> dict[str, str]:
    """Non-empty texts, with Unix line ends."""
    stripped = {language: text.replace("\r\n", "\n").strip() for language, text in texts.items()}
    return {language: text for language, text in stripped.items() if text}


def texts_digest(texts: Mapping[str, str]) -> str:
    """SHA-256 of the canonical JSON of a form's texts, in hexadecimal.

    >>> texts_digest({"en": "Hello"})[:8]
    'c7eafa31'
    """
    return hashlib.sha256(json.dumps(texts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@transaction.atomic
def consent_form_draft_save(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str]
) -> ConsentFormDraft:
    """Save ``texts`` as the study's draft, in place of the one before. A draft may be unfinished."""
    study_lock(study.pk)
    draft, _created = ConsentFormDraft.objects.update_or_create(
        study=study,
        defaults={"texts": _texts_given(texts), "saved_by_id": acting_user.pk, "saved_at": timezone.now()},
    )
    return draft


@transaction.atomic
def consent_form_publish(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str], valid: Valid = FOR_GOOD
) -> ConsentForm:
    """Publish the next version of a study's consent form, which asks nobody again and never changes afterwards.

    Args:
        study: the study.
        acting_user: who publishes it.
        texts: Markdown by language code.
        valid: how long a consent to it counts.

    Raises:
        ValidationError: what :func:`consent_form_check` refuses, or the study is a rehearsal.
    """
    study_asks_check(study)
    study = study_lock(study.pk)
    texts = consent_form_check(study, texts, valid)
    return _form_append(study, texts, acting_user, renewal=Renewal.NOT_ASKED, valid=valid)


@transaction.atomic
def consent_form_propose(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str], renewal: str, valid: Valid = FOR_GOOD
) -> ConsentFormProposal:
    """Propose a version that asks those who consented again; a second person publishes it.

    Args:
        study: the study.
        acting_user: who proposes it.
        texts: Markdown by language code.
        renewal: ASKED or REQUIRED, see :class:`consent.models.Renewal`.
        valid: how long a consent to it counts.

    Raises:
        ValidationError: what :func:`consent_form_check` refuses, no earlier version, or the study is a rehearsal.
    """
    study_asks_check(study)
    study = study_lock(study.pk)
    texts = consent_form_check(study, texts, valid)
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        raise ValidationError(_("Nobody has consented to a version before this one, so nobody can be asked again."))
    proposal = ConsentFormProposal(
        study=study,
        follows=latest.version,
        texts=texts,
        digest=texts_digest(texts),
        renewal=renewal,
        valid_months=valid.months,
        valid_until=valid.until,
        proposed_by_id=acting_user.pk,
        proposed_at=timezone.now(),
    )
    ConsentFormProposal.append([proposal])
    ConsentFormDraft.objects.filter(study=study).delete()
    approvers = members_with_permission(study, "consent.approve_consentform").exclude(pk=acting_user.pk)
    mails_send("form_waiting", approvers.values_list("pk", flat=True), study=study, about=proposal.pk)
    event_send("form.proposed", study, follows=proposal.follows)
    return proposal


@transaction.atomic
def consent_form_approve(*, proposal: ConsentFormProposal, acting_user: AbstractBaseUser) -> ConsentForm:
    """Approve a proposed version as a second person, which publishes it.

    Raises:
        ValidationError: the approver proposed it, the proposer's account is gone, it was published or rejected, or a
            newer version has been published since.
    """
    study = study_lock(proposal.study_id)
    study_open_check(study)
    second_person_check(
        study,
        proposal.proposed_by_id,
        acting_user,
        own=_("A form that asks people again is published by a second person, not by the one who proposed it."),
    )
    not_rejected_check(form=proposal)
    latest = selectors.consent_form_in_force(study)
    if latest is None or latest.version != proposal.follows:
        raise ValidationError(_("Another version has been published since. Propose this one again if it is needed."))
    valid = Valid.of(proposal)
    texts = consent_form_check(study, proposal.texts, valid)
    return _form_append(study, texts, acting_user, renewal=proposal.renewal, valid=valid, proposal=proposal)


def consent_form_check(study: Study, texts: Mapping[str, str], valid: Valid = FOR_GOOD) -> dict[str, str]:
    """Texts that can follow the version in force, without empty ones.

    Raises:
        ValidationError: no text in the site's first language or in one of the study's languages, the same texts and
            validity as the version in force, a change in some languages only, or a validity that is over already.
    """
    if valid.until is not None and valid.until <= day_of(timezone.now()):
        raise ValidationError({"valid_until": _("Nobody could consent to it any more. Choose a later day.")})
    texts = _texts_given(texts)
    if settings.LANGUAGE_CODE not in texts:
        raise ValidationError({"texts": _("The form needs a text in English.")})
    missing = _names(code for code in study.languages if code not in texts)
    if missing:
        raise ValidationError(
            {"texts": _("The study promises a text in %(languages)s, too. Write it first.") % {"languages": missing}}
        )
    untold = texts_missing(study)
    if untold:
        message = _(
            "The study's own texts (title, purpose and so on) are missing in %(languages)s. Write them in the study's "
            "settings first."
        )
        raise ValidationError({"texts": message % {"languages": _names(untold)}})
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        return texts
    if latest.digest == texts_digest(texts) and valid == Valid.of(latest):
        raise ValidationError({"texts": _("This is what the version in force says. Change it, then publish.")})
    kept = [code for code in texts if code in latest.texts]
    changed = [code for code in kept if texts[code] != latest.texts[code]]
    if changed and len(changed) < len(kept):
        message = _(
            "The text in %(changed)s has changed, that in %(same)s has not: people would read different things. Make "
            "the same change in every language."
        )
        same = _names(code for code in kept if code not in changed)
        raise ValidationError({"texts": message % {"changed": _names(changed), "same": same}})
    return texts


def _names(codes: Iterable[str]) -> str:
    return ", ".join(own_name(code) for code in codes)


def _form_append(
    study: Study,
    texts: dict[str, str],
    acting_user: AbstractBaseUser,
    *,
    renewal: str,
    valid: Valid,
    proposal: ConsentFormProposal | None = None,
) -> ConsentForm:
    """Append the next version; the study's lock is held and the texts are checked."""
    latest = selectors.consent_form_in_force(study)
    form = ConsentForm(
        study=study,
        version=latest.version + 1 if latest else 1,
        texts=texts,
        digest=texts_digest(texts),
        renewal=renewal,
        valid_months=valid.months,
        valid_until=valid.until,
        proposal=proposal,
        proposed_by_id=proposal.proposed_by_id if proposal else None,
        published_by_id=acting_user.pk,
        published_at=timezone.now(),
    )
    ConsentForm.append([form])
    if proposal is None:
        ConsentFormDraft.objects.filter(study=study).delete()
    holders_mail("new_form", study, about=form.pk)
    if form.proposed_by_id is not None:
        mails_send("form_approved", [form.proposed_by_id], study=study, about=form.pk)
    event_send("form.published", study, version=form.version)
    return form
