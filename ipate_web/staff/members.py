"""Page of a study's people: who has which role, and who changes it."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.requests import SignedInRequest
from consent import services
from consent.models import AccountChange, Membership, Role, RoleChange, Study
from consent.models.roles import CONFIRM, WATCHING
from consent.permissions import (
    changes_roles_alone,
    confirms_roles,
    in_one_hand,
    members_with_permission,
    roles_given_by,
)
from consent.selectors import role_changes_waiting
from consent.services.accounts import account_of_staff
from ipate_web.staff.pages import faults_in, faults_show, paginate, render_page, study_form


class MemberForm(forms.Form):
    """Give one of ``roles`` to somebody who has an account."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        help_text=gettext_lazy("The user name of a person who has an account here."),
    )

    def __init__(self, data: Any = None, *, roles: Iterable[str]) -> None:
        super().__init__(data)
        choices = [(role, Role(role).label) for role in roles]
        self.fields["role"] = forms.ChoiceField(label=gettext_lazy("Role"), choices=choices)

    def clean_username(self) -> AbstractBaseUser:
        user = account_of_staff(self.cleaned_data["username"])
        if user is None:
            raise ValidationError(
                gettext_lazy("No active account has this user name. Check the spelling, or ask for an account first.")
            )
        return user


@study_form("consent.view_dashboard")
def members(request: SignedInRequest, study: Study) -> HttpResponse:
    """The people of a study and the record of their roles; those who may give roles find the form below."""
    roles = roles_given_by(request.user, study)
    form = MemberForm(request.POST or None, roles=roles)
    if request.method == "POST" and not roles:
        raise PermissionDenied
    if form.is_valid():
        user, role = form.cleaned_data["username"], form.cleaned_data["role"]
        with faults_in(form):
            membership = services.membership_add(study=study, user=user, role=role, acting_user=request.user)
            _say(
                request,
                _("%(user)s now has the role “%(role)s”.") % {"user": user, "role": Role(role).label},
                membership,
            )
            return redirect("staff:members", study.slug)
    memberships = Membership.objects.filter(study=study).select_related("user").order_by("user__username", "role")
    present = {membership.role for membership in memberships}
    context = {
        "form": form,
        "roles": roles,
        "memberships": memberships,
        "waiting": [_waiting(study, proposal) for proposal in role_changes_waiting(study)],
        "missing": []
        if study.rehearsal
        else [role.label for role in (Role.CHAIR, Role.AUDITOR) if role not in present],
        "both": [] if study.rehearsal else _operators_and_stewards(memberships),
    }
    if request.user.has_perm("consent.view_rolechange", study):
        # Not joined: that would leave out the changes whose accounts have been deleted.
        changes = RoleChange.objects.filter(study=study).prefetch_related("user", "changed_by", "proposed_by")
        context["page"] = paginate(request, changes.order_by("-sequence"), 20)
    return render_page(request, study, "staff/people/members.html", context)


@study_form("consent.view_dashboard")
def member_remove(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Are you sure? Then the role is gone, or waits for a second person."""
    roles = roles_given_by(request.user, study)
    if not roles:
        raise PermissionDenied
    membership = get_object_or_404(Membership.objects.select_related("user", "study"), study=study, pk=pk)
    if membership.role not in roles:
        raise PermissionDenied
    if request.method == "POST":
        with faults_show(request):
            gone = services.membership_remove(membership=membership, acting_user=request.user)
            _say(request, _("Role removed."), gone)
        return _back(request, study)
    at_once = changes_roles_alone(request.user, study, whose=membership.user_id, giving=False)
    context = {"membership": membership, "at_once": at_once}
    return render_page(request, study, "staff/people/member_remove.html", context)


@study_form("consent.view_dashboard")
def role_change(request: SignedInRequest, study: Study, sequence: int) -> HttpResponse:
    """One proposed change of a role, to be confirmed, refused or withdrawn."""
    proposal = get_object_or_404(RoleChange, study=study, sequence=sequence, kind__in=RoleChange.PROPOSALS)
    if request.method == "POST":
        confirmed = "confirm" in request.POST
        with faults_show(request):
            if confirmed:
                services.role_change_confirm(proposal=proposal, acting_user=request.user)
            else:
                services.role_change_drop(proposal=proposal, acting_user=request.user)
            messages.success(request, _("The change is in effect.") if confirmed else _("Proposal withdrawn."))
        return _back(request, study)
    own = proposal.changed_by_id == request.user.pk
    known = Membership.objects.filter(study=study, user_id=proposal.user_id).values_list("role", flat=True)
    context = {
        **_waiting(study, proposal),
        "is_waiting": proposal in role_changes_waiting(study),
        "is_own": own,
        "has_say": own or proposal.role in roles_given_by(request.user, study) or confirms_roles(request.user, study),
        "may_confirm": confirms_roles(request.user, study) and _can_confirm(study, proposal, request.user),
        "would_be_both": proposal.kind == RoleChange.Kind.TO_GIVE
        and {*known, proposal.role} >= {Role.OPERATOR, Role.STEWARD},
        "watches": proposal.role in WATCHING,
    }
    return render_page(request, study, "staff/people/role_change.html", context)


def _say(request: SignedInRequest, done: str, at_once: object) -> None:
    """Say that a change is ``done``, or that it waits."""
    if at_once:
        messages.success(request, done)
    else:
        messages.info(request, _("Proposed. A person who oversees the study has to confirm it."))


def _back(request: SignedInRequest, study: Study) -> HttpResponse:
    """Lead back to the people of the study, or home who has no part in it any more."""
    if not request.user.has_perm("consent.view_dashboard", study):
        return redirect("home")
    return redirect("staff:members", study.slug)


def _can_confirm(study: Study, proposal: RoleChange, person: Any) -> bool:
    """Whether somebody who watches the study can confirm this proposal, too: as a second person, not for themself."""
    concerned = proposal.kind == RoleChange.Kind.TO_GIVE and proposal.user_id == person.pk
    proposer = proposal.changed_by_id
    return not concerned and proposer not in (None, person.pk) and not in_one_hand(study, proposer, person.pk)


def _waiting(study: Study, proposal: RoleChange) -> dict[str, Any]:
    """A proposal, who can confirm it, and who made the account that it is about."""
    people = [person for person in members_with_permission(study, CONFIRM) if _can_confirm(study, proposal, person)]
    made = AccountChange.objects.filter(user_id=proposal.user_id, kind=AccountChange.Kind.CREATED)
    return {
        "proposal": proposal,
        "confirming": ", ".join(str(person) for person in people),
        "made_by": made.prefetch_related("changed_by").first(),
    }


def _operators_and_stewards(memberships: Any) -> list[str]:
    """Names of those who are both, with a duty that no program can enforce."""
    roles = {(membership.user, membership.role) for membership in memberships}
    return [str(user) for user, role in roles if role == Role.OPERATOR and (user, Role.STEWARD) in roles]
