"""Mails about studies: to holders, and to those who approve ε policies."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from consent.mail import MailKind, kinds_register
from consent.models import ConsentForm, EpsilonPolicy, Mail


def _form(mail: Mail) -> dict[str, Any] | None:
    form = ConsentForm.objects.filter(pk=mail.about).first()
    return {"form": form} if form else None


def _policy(mail: Mail) -> dict[str, Any] | None:
    policy = EpsilonPolicy.objects.filter(pk=mail.about).select_related("approval").first()
    return {"policy": policy} if policy else None


def _waiting_policy(mail: Mail) -> dict[str, Any] | None:
    policy = EpsilonPolicy.objects.filter(pk=mail.about, approval=None).first()
    return {"policy": policy} if policy else None


def register() -> None:
    """Register these kinds, once, at start-up."""
    kinds_register(
        MailKind("receipt", _("your decision is recorded")),
        MailKind("new_form", _("a study has new information"), _form),
        MailKind("new_policy", _("what the levels mean has changed"), _policy),
        MailKind("study_closed", _("a study was closed")),
        MailKind("new_link", _("a new link was made for you")),
        MailKind("policy_waiting", _("an ε policy waits for approval"), _waiting_policy),
    )
