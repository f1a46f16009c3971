"""Emails about studies: to holders, to people who approve ε policies and forms, and to everyone with a role."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from consent.models import (
    Checkpoint,
    ConsentEvent,
    ConsentForm,
    ConsentFormProposal,
    EpsilonPolicy,
    Mail,
    News,
    RoleChange,
)
from consent.people.circumstances import last_day
from consent.promises.status import level_changes
from consent.promises.uses import results_of
from consent.selectors import consent_current, is_waiting
from consent.services.checkpoints import checkpoint_extension
from consent.services.mail import MailKind, kinds_register, mail_holders, news_readers


def _form(mail: Mail) -> dict[str, Any] | None:
    form = ConsentForm.objects.filter(pk=mail.about).first()
    return {"form": form, "level_changes": level_changes(form.study)} if form else None


def _policy(mail: Mail) -> dict[str, Any] | None:
    policy = EpsilonPolicy.objects.filter(pk=mail.about, approval__isnull=False).first()
    return {"policy": policy, "level_changes": level_changes(policy.study, policy)} if policy else None


def _waiting_policy(mail: Mail) -> dict[str, Any] | None:
    policy = EpsilonPolicy.objects.filter(pk=mail.about).first()
    return {"policy": policy} if policy and is_waiting(policy) else None


def _waiting_form(mail: Mail) -> dict[str, Any] | None:
    proposal = ConsentFormProposal.objects.filter(pk=mail.about).first()
    return {"proposal": proposal} if proposal and is_waiting(proposal) else None


def _role_change(mail: Mail) -> dict[str, Any] | None:
    change = RoleChange.objects.filter(pk=mail.about).prefetch_related("user", "changed_by", "proposed_by").first()
    return {"change": change} if change else None


def _renewal(mail: Mail) -> dict[str, Any] | None:
    event = ConsentEvent.objects.filter(pk=mail.about, renew_by__isnull=False).select_related("holder").first()
    if event is None or consent_current(event.holder) != event:
        return None
    return {"last_day": last_day(event)}


def _checkpoint(mail: Mail) -> dict[str, Any] | None:
    checkpoint = Checkpoint.objects.filter(pk=mail.about).first()
    return {"checkpoint": checkpoint, "text": checkpoint_extension(checkpoint)} if checkpoint else None


def _news(mail: Mail) -> dict[str, Any] | None:
    """Return the context of an email about results; None if its reader gets no news or the result was withdrawn."""
    news = News.objects.filter(pk=mail.about).first()
    if news is None or mail.study is None:
        return None
    if not news_readers([mail.study]).filter(holder__in=mail_holders(mail)).exists():
        return None
    results = [each for each in results_of(mail.study) if not news.about or each.key == news.about]
    if news.about and not any(each.withdrawn_at is None for each in results):
        return None
    return {"news": news, "results": results}


def _later(mail: Mail) -> dict[str, Any] | None:
    """Return the context of a reminder; None if the study is closed or the person has decided since requesting it."""
    holder = mail_holders(mail).first()
    if holder is None or mail.study is None or mail.study.is_closed:
        return None
    current = consent_current(holder)
    return None if current is not None and current.recorded_at > mail.created_at else {}


def _unconfirmed(mail: Mail) -> str:
    return mail.address.email if mail.address is not None and not mail.address.confirmed_at else ""


def register() -> None:
    """Register these kinds of email. Called once, at start-up."""
    kinds_register(
        MailKind("receipt", _("your decision is recorded")),
        MailKind("address_left", _("confirm an address you entered"), address=_unconfirmed),
        MailKind("new_form", _("a study has new information"), _form),
        MailKind("correction", _("a small correction to a study's information has been announced"), _waiting_form),
        MailKind("new_policy", _("the protection levels have changed"), _policy),
        MailKind("renewal", _("a decision needs to be renewed"), _renewal),
        MailKind("result_published", _("a result was published"), _news, wish="results"),
        MailKind("results_of_year", _("what was learned this year"), _news, wish="results"),
        MailKind("decide_later", _("the reminder you asked for"), _later),
        MailKind("handed_over", _("another person now answers for the records")),
        MailKind("study_closed", _("a study was closed")),
        MailKind("new_link", _("a new link was created for you")),
        MailKind("role_changed", _("a role in a study has changed, or a change was proposed"), _role_change),
        MailKind("policy_waiting", _("an ε policy is waiting for approval"), _waiting_policy, wish="approvals"),
        MailKind("policy_overdue", _("a decision on an ε policy is overdue"), _waiting_policy, wish="approvals"),
        MailKind("policy_approved", _("an ε policy was approved"), _policy, wish="approvals"),
        MailKind("form_waiting", _("a consent form is waiting for approval"), _waiting_form, wish="approvals"),
        MailKind("form_overdue", _("a decision on a consent form is overdue"), _waiting_form, wish="approvals"),
        MailKind("form_approved", _("a consent form was approved"), _form, wish="approvals"),
        MailKind("checkpoint", _("a signed checkpoint"), _checkpoint),
    )
