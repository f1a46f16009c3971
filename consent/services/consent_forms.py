"""Consent forms: drafts, checks, proposals, approvals, and small corrections, which take effect if no one objects.

Every version is proposed by one person and published by a second person on the committee. A small correction changes no
fact and few words. It is announced to the committee and the holders, and takes effect automatically after a period in
which any committee member can object.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from difflib import SequenceMatcher
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.languages import own_name
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, Remark, Renewal, Study, study_lock
from consent.people.circumstances import day_begin, day_of
from consent.permissions import accounts_are_linked, members_with_permission, second_person_check
from consent.services.changes import changes_recorded
from consent.services.committee import answer_day, approval_record, approvers_mail, not_rejected_check
from consent.services.decisions import check_answers_supersede
from consent.services.mail import holders_mail, mails_send
from consent.services.studies import study_asks_check, study_open_check
from consent.services.webhooks import event_send
from consent.wording.facts import (
    FACTS,
    RELIED_ON,
    changed_facts,
    contradictions,
    fact_label,
    facts_missing,
    facts_of,
    study_with,
    texts_missing,
)

#: Whole days in which committee members can object to a small correction.
OBJECTION_DAYS = 14
#: A small correction changes at most this many words of each text, or at most this fraction of its words.
CORRECTED_WORDS = 3
CORRECTED_PART = 0.05
#: Words that reverse the meaning of a sentence, in the languages of the site.
_TURNING = frozenset(
    {
        *("no", "not", "none", "nobody", "never", "nothing", "neither", "nor", "without", "cannot", "only", "all"),
        *("nicht", "nichts", "nie", "niemals", "niemand", "kein", "keine", "keinen", "keinem", "keiner", "keines"),
        *("ohne", "weder", "nur", "alle", "always", "immer", "every"),
    }
)


@dataclass(frozen=True)
class Valid:
    """Validity of a consent to a version: some months, until the end of a day, or unlimited."""

    months: int | None = None
    until: date | None = None

    @classmethod
    def of(cls, form: ConsentForm | ConsentFormProposal) -> "Valid":
        return cls(form.valid_months, form.valid_until)


FOR_GOOD = Valid()


def _texts_given(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the non-empty texts, with Unix line endings."""
    stripped = {language: text.replace("\r\n", "\n").strip() for language, text in texts.items()}
    return {language: text for language, text in stripped.items() if text}


def form_digest(texts: Mapping[str, str], facts: Mapping[str, Any] | None) -> str:
    """Return the SHA-256 of the canonical JSON of a form's texts and facts, in hexadecimal.

    >>> form_digest({"en": "Hello"}, {"contact": "a@example.org"})[:8]
    '7b52551e'
    """
    content = json.dumps({"facts": facts, "texts": texts}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


# --- Drafts ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def consent_form_draft_save(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str], facts: Mapping[str, Any] | None = None
) -> ConsentFormDraft:
    """Save ``texts`` as the study's draft, replacing the previous one. A draft may be unfinished.

    Args:
        texts: Markdown by language code.
        facts: the study's statements about itself; by default, the facts of the previous draft or of the study.
    """
    study_lock(study.pk)
    values = {} if facts is None else {"facts": dict(facts)}
    draft, _created = ConsentFormDraft.objects.update_or_create(
        study=study,
        defaults={"texts": _texts_given(texts), "saved_by_id": acting_user.pk, "saved_at": timezone.now(), **values},
    )
    return draft


def draft_facts(draft: ConsentFormDraft) -> dict[str, Any]:
    """Return the draft's own facts, or else the study's."""
    return draft.facts if draft.facts is not None else facts_of(draft.study)


# --- Proposals ------------------------------------------------------------------------------------------------------


@transaction.atomic
def consent_form_propose(
    *,
    study: Study,
    acting_user: AbstractBaseUser,
    texts: Mapping[str, str],
    renewal: str = Renewal.NOT_ASKED,
    valid: Valid = FOR_GOOD,
    facts: Mapping[str, Any] | None = None,
    answer_by: date | None = None,
) -> ConsentFormProposal:
    """Propose the next version of a study's form; a second person publishes it.

    Args:
        texts: Markdown by language code.
        renewal: consequence for people who consented to an earlier version, see :class:`consent.models.Renewal`.
        valid: how long a consent to the version is valid.
        facts: the study's statements about itself; by default, the current ones.
        answer_by: last day to answer; by default, in two weeks.

    Raises:
        ValidationError: :func:`consent_form_check` refuses the form, the first version asks people again, a fact that
            people rely on changes without asking them again, a day is out of range, or the study is a rehearsal.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    facts = facts_of(study) if facts is None else dict(facts)
    texts = consent_form_check(study, texts, valid, facts)
    latest = selectors.consent_form_in_force(study)
    if latest is None and renewal != Renewal.NOT_ASKED:
        raise ValidationError(_("No one has consented to an earlier version, so there is no one to ask again."))
    if latest is not None and renewal != Renewal.REQUIRED:
        relied = [name for name in changed_facts(latest.facts, facts) if name in RELIED_ON]
        if relied:
            message = _(
                "People consented to different facts (%(facts)s), so their consent does not cover the new ones. "
                "Choose to suspend their consent until they answer."
            )
            raise ValidationError({"renewal": message % {"facts": ", ".join(map(fact_label, relied))}})
    return _proposal_append(
        study, acting_user, texts=texts, facts=facts, renewal=renewal, valid=valid, answer_by=answer_day(answer_by)
    )


@transaction.atomic
def consent_form_correct(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str]
) -> ConsentFormProposal:
    """Announce a small correction, which takes effect automatically unless someone on the committee objects.

    Args:
        texts: Markdown by language code, in the same languages as the version in force.

    Raises:
        ValidationError: :func:`consent_form_check` or :func:`correction_check` refuses the texts, the committee has no
            member who could object, or the study is a rehearsal.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        raise ValidationError(_("There is no version to correct yet. Propose the first one."))
    valid = Valid.of(latest)
    texts = consent_form_check(study, texts, valid, latest.facts)
    correction_check(latest.texts, texts)
    others = members_with_permission(study, "consent.approve_consentform").exclude(pk=acting_user.pk)
    if not any(not accounts_are_linked(study, acting_user.pk, member.pk) for member in others):
        raise ValidationError(
            _("You are the only member of the ethics committee, so no one could object. Propose this as a new version.")
        )
    until = day_begin(day_of(timezone.now()) + timedelta(days=OBJECTION_DAYS + 1))
    proposal = _proposal_append(
        study,
        acting_user,
        texts=texts,
        facts=latest.facts,
        renewal=Renewal.NOT_ASKED,
        valid=valid,
        objection_until=until,
    )
    holders_mail("correction", study, about=proposal.pk)
    return proposal


def correction_check(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check that a correction is small: same languages, few words, and the same numbers, addresses and negations.

    Raises:
        ValidationError: the changes are too large for a correction.
    """
    if set(before) != set(after):
        raise ValidationError(_("A correction cannot add or remove a language. Propose this as a new version."))
    for language, text in after.items():
        words = _words(before[language])
        old, new = _words_changed(words, _words(text))
        changed = {*old, *new}
        most = max(CORRECTED_WORDS, int(CORRECTED_PART * len(words)))
        if max(len(old), len(new)) > most:
            message = _(
                "More than %(most)d words of the text in %(language)s would change, which is too many for a "
                "correction. Propose this as a new version."
            )
            raise ValidationError(message % {"most": most, "language": own_name(language)})
        telling = sorted(word for word in changed if word in _TURNING or re.search(r"[\d@]|\w\.\w|n['’]t$", word))
        if telling:
            message = _(
                "Numbers, addresses and words like “not” change the meaning: %(words)s. Propose this as a new version."
            )
            raise ValidationError(message % {"words": ", ".join(telling)})


def _words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case."""
    return re.findall(r"[\w@.+'’-]*\w", text.lower())


def _words_changed(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Return removed and added words. A moved word is both, because a different order can change the meaning."""
    out: list[str] = []
    put: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            out += before[a:b]
            put += after[c:d]
    return out, put


def _proposal_append(
    study: Study,
    acting_user: AbstractBaseUser,
    *,
    texts: dict[str, str],
    facts: dict[str, Any],
    renewal: str,
    valid: Valid,
    objection_until: datetime | None = None,
    answer_by: date | None = None,
) -> ConsentFormProposal:
    """Append a proposal and notify the committee; the caller holds the study's lock and has checked the texts."""
    latest = selectors.consent_form_in_force(study)
    proposal = ConsentFormProposal(
        study=study,
        follows=latest.version if latest else 0,
        texts=texts,
        facts=facts,
        digest=form_digest(texts, facts),
        renewal=renewal,
        objection_until=objection_until,
        answer_by=answer_by,
        valid_months=valid.months,
        valid_until=valid.until,
        proposed_by_id=acting_user.pk,
        proposed_at=timezone.now(),
    )
    ConsentFormProposal.append([proposal])
    ConsentFormDraft.objects.filter(study=study).delete()
    approvers_mail("form_waiting", "consent.approve_consentform", study=study, about=proposal.pk, by=acting_user)
    event_send("form.proposed", study, follows=proposal.follows)
    return proposal


# --- Publication ----------------------------------------------------------------------------------------------------


@transaction.atomic
def consent_form_approve(
    *, proposal: ConsentFormProposal, acting_user: AbstractBaseUser, conditions: str = ""
) -> ConsentForm:
    """Give the last approval that a proposed version needs, which publishes it.

    Args:
        conditions: recorded conditions of the approval; may be empty.

    Raises:
        ValidationError: the approver proposed the version or has a conflict of interest, the proposer's account has
            been deleted, the version was published or rejected or is a correction, a newer version has been published,
            the study's facts have changed, or more people have to approve.
    """
    study = study_lock(proposal.study_id)
    study_open_check(study)
    if proposal.is_correction:
        raise ValidationError(_("A correction takes effect automatically unless someone objects."))
    second_person_check(
        study,
        proposal.proposed_by_id,
        acting_user,
        own=_("You proposed this form, so a second person must publish it."),
    )
    not_rejected_check(form=proposal)
    latest = selectors.consent_form_in_force(study)
    if (latest.version if latest else 0) != proposal.follows:
        raise ValidationError(
            _("Another version has been published in the meantime. Propose this one again if you still need it.")
        )
    if latest is None and facts_of(study) != proposal.facts:
        raise ValidationError(_("The study's settings have changed since this was proposed. Propose it again."))
    consent_form_check(study, proposal.texts, Valid.of(proposal), proposal.facts)
    approval_record(study, proposal, acting_user, conditions=conditions, last=True)
    return _form_append(study, proposal, acting_user)


@transaction.atomic
def corrections_publish(at: datetime | None = None) -> int:
    """Publish the corrections whose objection period has ended by ``at`` (default: now); return their number.

    Corrections that drew an objection, were replaced by another version, or belong to a closed study are omitted.
    """
    at = at or timezone.now()
    due = ConsentFormProposal.objects.filter(objection_until__lte=at, form=None, study__closed_at=None)
    published = 0
    for proposal in due.order_by("pk"):
        study = study_lock(proposal.study_id)
        latest = selectors.consent_form_in_force(study)
        objected = Remark.objects.filter(form=proposal, kind=Remark.Kind.REJECTION).exists()
        if latest is not None and latest.version == proposal.follows and not objected and not study.is_closed:
            _form_append(study, proposal, None)
            published += 1
    return published


def consent_form_check(
    study: Study, texts: Mapping[str, str], valid: Valid = FOR_GOOD, facts: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the non-empty texts, after checking that they can follow the version in force.

    Raises:
        ValidationError: the site's first language or one of the study's languages has no text, a required fact is
            missing, a text contradicts the facts, nothing differs from the version in force, only some languages
            change, or the validity has already ended.
    """
    if valid.until is not None and valid.until <= day_of(timezone.now()):
        raise ValidationError({"valid_until": _("No one would be able to consent any more. Choose a later day.")})
    facts = facts_of(study) if facts is None else facts
    texts = _texts_given(texts)
    if settings.LANGUAGE_CODE not in texts:
        raise ValidationError({"texts": _("The form needs an English version.")})
    missing = _names(code for code in study.languages if code not in texts)
    if missing:
        raise ValidationError(
            {
                "texts": _("The study also promises a text in %(languages)s. Write that text first.")
                % {"languages": missing}
            }
        )
    described = study_with(study, facts)
    _facts_check(described, texts)
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        return texts
    if latest.digest == form_digest(texts, facts) and valid == Valid.of(latest):
        raise ValidationError({"texts": _("This is the same as the current version. Change it before you publish.")})
    if (promised := latest.facts.get("retention_until")) and (facts.get("retention_until") or "9999") > promised:
        raise ValidationError(
            {
                "facts": _(
                    "People were promised that their records will not be kept after this day. Choose an earlier day, "
                    "or create a new study for a later one."
                )
            }
        )
    codes = [code for code in texts if code in latest.texts]
    changed = [code for code in codes if texts[code] != latest.texts[code]]
    if changed and len(changed) < len(codes):
        message = _(
            "The text in %(changed)s has changed, but the text in %(same)s has not, so people would read different "
            "things. Make the same change in every language."
        )
        same = _names(code for code in codes if code not in changed)
        raise ValidationError({"texts": message % {"changed": _names(changed), "same": same}})
    return texts


def _facts_check(study: Study, texts: Mapping[str, str]) -> None:
    """Refuse a form that lacks or contradicts required facts. Raises ValidationError."""
    lacking = facts_missing(study)
    if lacking:
        message = _("Under the GDPR (Articles 13 and 14), you must also tell people: %(facts)s.")
        raise ValidationError({"facts": message % {"facts": ", ".join(missing.label for missing in lacking)}})
    silent_languages = texts_missing(study)
    if silent_languages:
        message = _(
            "The study's own texts (title, purpose and so on) are missing in %(languages)s. Add them in the study's "
            "settings first."
        )
        raise ValidationError({"texts": message % {"languages": _names(silent_languages)}})
    against = list(dict.fromkeys(contradictions(texts, study)))
    if against:
        message = _(
            "The text says “%(words)s”, but according to the facts no one else sees raw records. Name the recipients "
            "in the facts, or change the text."
        )
        raise ValidationError({"texts": message % {"words": "”, “".join(against)}})


def _names(codes: Iterable[str]) -> str:
    return ", ".join(own_name(code) for code in codes)


def _form_append(study: Study, proposal: ConsentFormProposal, acting_user: AbstractBaseUser | None) -> ConsentForm:
    """Append the next version, whose facts become the study's; the caller holds the lock and has checked the texts."""
    form = ConsentForm(
        study=study,
        version=proposal.follows + 1,
        texts=proposal.texts,
        facts=proposal.facts,
        digest=proposal.digest,
        renewal=proposal.renewal,
        objection_until=proposal.objection_until,
        valid_months=proposal.valid_months,
        valid_until=proposal.valid_until,
        proposal=proposal,
        proposed_by_id=proposal.proposed_by_id,
        published_by_id=acting_user.pk if acting_user else None,
        published_at=timezone.now(),
    )
    ConsentForm.append([form])
    check_answers_supersede(form)
    if facts_of(study) != form.facts:
        described = study_with(study, form.facts)
        with changes_recorded([study], acting_user=acting_user):
            for name in (*FACTS, "translations"):
                setattr(study, name, getattr(described, name))
            study.save()
    if not proposal.is_correction:
        holders_mail("new_form", study, about=form.pk)
    proposer = User.objects.filter(pk=form.proposed_by_id)  # for a correction, the account may have been deleted
    mails_send("form_approved", proposer.values_list("pk", flat=True), study=study, about=form.pk)
    event_send("form.published", study, version=form.version)
    return form


# --- Verification ---------------------------------------------------------------------------------------------------


def form_faults(study: Study) -> Iterator[str]:
    """Check that each version is as proposed, and that a second person or the end of the objection period published it.

    Yields:
        One sentence for each fault.
    """
    newest = None
    for newest in ConsentForm.chain(study.pk).select_related("proposal"):
        who, proposal = f"version {newest.version} of the form", newest.proposal
        if newest.digest != form_digest(newest.texts, newest.facts):
            yield f"{who}: its digest does not match its texts and facts."
        proposed = (proposal.digest, proposal.renewal, proposal.objection_until, proposal.proposed_by_id)
        if proposed != (newest.digest, newest.renewal, newest.objection_until, newest.proposed_by_id):
            yield f"{who}: differs from its proposal."
        if newest.objection_until is not None and newest.published_at < newest.objection_until:
            yield f"{who}: a correction that came into force before the objection period ended."
        if Remark.objects.filter(form=proposal, kind=Remark.Kind.REJECTION, made_at__lt=newest.published_at).exists():
            yield f"{who}: was published although it was rejected."
    if newest is not None:
        facts = facts_of(study)
        if study.is_closed:  # closing a study may set an earlier last day
            facts["retention_until"] = newest.facts["retention_until"]
        for name in facts:
            if facts[name] != newest.facts.get(name):
                yield f"the study's {name}: differs from version {newest.version} of the form."
