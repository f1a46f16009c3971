"""State of a study for its ethics committee: rules in force, proposals, deadlines and past decisions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from consent.models import ConflictOfInterest, ConsentForm, ConsentFormProposal, EpsilonPolicy, Remark, Study
from consent.models.recorded import actor_name
from consent.selectors import (
    answer_deadline,
    consent_form_in_force,
    forms_waiting,
    policies_approved,
    policies_waiting,
    policy_in_force,
)

#: Number of decisions shown on the page; the change log and the exports contain all of them.
_LATEST = 30


@dataclass(frozen=True)
class WaitingProposal:
    """Proposal that is waiting for approval, with the approvals it has so far."""

    proposal: EpsilonPolicy | ConsentFormProposal
    given: int

    @property
    def answer_by(self) -> date | None:
        """Return the deadline for an answer."""
        return answer_deadline(self.proposal)

    @property
    def is_policy(self) -> bool:
        return isinstance(self.proposal, EpsilonPolicy)


@dataclass(frozen=True)
class Deadline:
    """Day on which something begins or ends."""

    day: date
    text: str


@dataclass(frozen=True)
class CommitteeAct:
    """Entry of the history: an act with its time, the person who acted, and that person's text."""

    at: datetime
    by: str
    what: str
    text: str = ""


@dataclass(frozen=True)
class CommitteeState:
    """State of a study for its ethics committee.

    Attributes:
        policy: the ε policy in force.
        form: the consent form in force.
        is_open: whether people can decide.
        missing: requirements that must still be met before people can decide.
        waiting: proposals that are waiting for approvals, the most urgent first.
        deadlines: upcoming days, the next first.
        conditions: conditional approvals of the policy and the form in force.
        conflicts: declared conflicts of interest.
        history: decisions, newest first.
    """

    policy: EpsilonPolicy | None
    form: ConsentForm | None
    is_open: bool
    missing: list[str]
    waiting: list[WaitingProposal]
    deadlines: list[Deadline]
    conditions: list[Remark]
    conflicts: list[ConflictOfInterest]
    history: list[CommitteeAct]


def committee_state(study: Study) -> CommitteeState:
    """Return the current state of ``study``."""
    policy, form = policy_in_force(study), consent_form_in_force(study)
    # No join with users, because it would omit acts of accounts that have since been deleted.
    remarks = list(Remark.chain(study.pk).select_related("policy", "form").prefetch_related("made_by"))
    conflicts = list(ConflictOfInterest.chain(study.pk).prefetch_related("user"))
    waiting: list[EpsilonPolicy | ConsentFormProposal] = [*policies_waiting(study), *forms_waiting(study)]
    missing = [
        text
        for is_missing, text in (
            (not study.harm, _("an example of harm")),
            (policy is None, _("an approved ε policy")),
            (form is None, _("a published consent form")),
        )
        if is_missing
    ]
    return CommitteeState(
        policy=policy,
        form=form,
        is_open=not missing and not study.is_closed,
        missing=missing,
        waiting=sorted(
            (WaitingProposal(each, sum(_approves(remark, each) for remark in remarks)) for each in waiting),
            key=lambda each: (each.answer_by or date.max, each.proposal.proposed_at),
        ),
        deadlines=sorted(_deadlines(study, form), key=lambda deadline: deadline.day),
        conditions=conditions_in_force(study),
        conflicts=conflicts,
        history=sorted(_history(study, remarks, conflicts), key=lambda entry: entry.at, reverse=True)[:_LATEST],
    )


def conditions_in_force(study: Study) -> list[Remark]:
    """Return the conditional approvals of the policy and the form in force."""
    stated = Remark.chain(study.pk).filter(kind=Remark.Kind.APPROVAL).exclude(text="")
    about = list(stated.select_related("policy").prefetch_related("made_by"))
    if not about:
        return []
    policy, form = policy_in_force(study), consent_form_in_force(study)
    proposal = form.proposal_id if form else None
    return [
        remark
        for remark in about
        if (policy and remark.policy_id == policy.pk) or (proposal and remark.form_id == proposal)
    ]


def _approves(remark: Remark, proposal: EpsilonPolicy | ConsentFormProposal) -> bool:
    about = remark.policy_id if isinstance(proposal, EpsilonPolicy) else remark.form_id
    return remark.kind == Remark.Kind.APPROVAL and about == proposal.pk


def _deadlines(study: Study, form: ConsentForm | None) -> Iterator[Deadline]:
    today = timezone.localdate()
    coming = policies_approved(study).filter(is_replaced=False, approval__effective_from__gt=timezone.now())
    for policy in coming.select_related("approval"):
        message = _("ε policy, version %(version)d, takes effect") % {"version": policy.version}
        yield Deadline(timezone.localdate(policy.approval.effective_from), message)
    if form is not None and form.valid_until is not None and form.valid_until >= today:
        yield Deadline(form.valid_until, _("last day on which consent to the current form is valid"))
    if study.retention_until is not None and not study.is_closed:
        yield Deadline(study.retention_until, _("last day the records are kept, after which the study is closed"))


def _history(study: Study, remarks: list[Remark], conflicts: list[ConflictOfInterest]) -> Iterator[CommitteeAct]:
    policies = EpsilonPolicy.objects.filter(study=study).prefetch_related("proposed_by")
    for policy in policies:
        message = _("proposed ε policy, version %(version)d") % {"version": policy.version}
        yield CommitteeAct(policy.proposed_at, actor_name(policy, "proposed_by"), message, policy.reason)
    for proposal in ConsentFormProposal.objects.filter(study=study).prefetch_related("proposed_by"):
        message = _("proposed version %(version)d of the consent form") % {"version": proposal.follows + 1}
        yield CommitteeAct(proposal.proposed_at, actor_name(proposal, "proposed_by"), message)
    for form in ConsentForm.objects.filter(study=study).prefetch_related("published_by"):
        message = _("published version %(version)d of the consent form") % {"version": form.version}
        yield CommitteeAct(form.published_at, actor_name(form, "published_by"), message)
    for remark in remarks:
        if remark.policy is not None:
            about = _("ε policy, version %(version)d") % {"version": remark.policy.version}
        else:
            assert remark.form is not None, "a remark belongs to one proposal"
            about = _("version %(version)d of the consent form") % {"version": remark.form.follows + 1}
        what = f"{remark.get_kind_display()}: {about}"
        yield CommitteeAct(remark.made_at, actor_name(remark, "made_by"), what, remark.text)
    for conflict in conflicts:
        what = _("declared a conflict of interest")
        yield CommitteeAct(conflict.declared_at, actor_name(conflict, "user"), what, conflict.reason)
