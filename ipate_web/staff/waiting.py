"""Proposals that wait for the decision of a person, over all of their studies."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from consent.models import Study
from consent.permissions import studies_with_permission
from consent.selectors import forms_waiting, policies_waiting
from training.models import Run


@dataclass(frozen=True)
class Waiting:
    """Proposal: what it is, where it is decided, and whether the person made it themselves."""

    study: Study
    text: str
    url: str
    since: datetime
    is_own: bool


def waiting_for(user: Any) -> list[Waiting]:
    """Policies, consent forms and runs that ``user`` may approve, or has proposed to those who may, oldest first."""
    return sorted(_waiting(user), key=lambda each: each.since)


def _waiting(user: Any) -> Iterator[Waiting]:
    for study in studies_with_permission(user, "consent.approve_epsilonpolicy"):
        for policy in policies_waiting(study):
            url = reverse("staff:policy_approve", args=[study.slug, policy.version])
            text = _("ε policy, version %(version)d") % {"version": policy.version}
            yield Waiting(study, text, url, policy.proposed_at, policy.proposed_by_id == user.pk)
    for study in studies_with_permission(user, "consent.approve_consentform"):
        for proposal in forms_waiting(study):
            url = reverse("staff:consent_form_proposal", args=[study.slug, proposal.sequence])
            text = _("Consent form that asks people again, to follow version %(version)d") % {
                "version": proposal.follows
            }
            yield Waiting(study, text, url, proposal.proposed_at, proposal.proposed_by_id == user.pk)
    studies = studies_with_permission(user, "training.approve_run")
    for run in Run.objects.filter(study__in=studies, status=Run.Status.DRAFT).select_related("study"):
        url = reverse("staff:run_approve", args=[run.study.slug, run.pk])
        text = _("Run: %(title)s") % {"title": run.title}
        yield Waiting(run.study, text, url, run.created_at, run.created_by_id == user.pk)
