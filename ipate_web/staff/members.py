"""Page of a study's people: their roles, and changes to roles."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.requests import SignedInRequest
from consent import services
from consent.forms import INVALID_EMAIL
from consent.models import AccountChange, Membership, Role, RoleChange, Study
from consent.models.roles import CONFIRM, WATCHING
from consent.permissions import (
    accounts_are_linked,
    confirms_roles,
    members_with_permission,
    needs_no_confirmation,
    roles_given_by,
)
from consent.selectors import role_changes_waiting
from consent.services.accounts import account_of_staff, staff
from ipate_web.lists import (
    Column,
    Filter,
    Listing,
    Reader,
    account,
    action_link,
    actor_column,
    day_column,
    day_filters,
    time_column,
    user_filter,
)
from ipate_web.staff.pages import faults_in, faults_show, render_page, study_form


@dataclass(frozen=True)
class MembersReader(Reader):
    """Reader who may assign or remove some ``roles``."""

    roles: Collection[str] = ()


def _person(membership: Membership, _reader: Reader) -> SafeString:
    name = membership.user.get_full_name()
    return (
        format_html('{} <span class="soft">{}</span>', membership.user, name)
        if name
        else format_html("{}", membership.user)
    )


def _remove(membership: Membership, reader: Any) -> SafeString | str:
    if membership.role not in reader.roles:
        return ""
    address = reverse("staff:member_remove", args=[reader.study.slug, membership.pk])
    return action_link(address, _("Remove role"), membership)


MEMBERS = Listing(
    columns=(
        Column(
            "person",
            gettext_lazy("Person"),
            _person,
            fields=("user__username", "user__first_name", "user__last_name"),
            is_head=True,
        ),
        Column("role", gettext_lazy("Role"), lambda row, _reader: row.get_role_display(), fields=("role",)),
        day_column("since", gettext_lazy("Since"), "created_at", is_minor=True),
        Column(
            "actions",
            gettext_lazy("Actions"),
            _remove,
            fields=("role",),
            kind="number",
            is_silent=True,
            is_for=lambda reader: bool(reader.roles),
        ),
    ),
    ties=("user__username", "role"),
)


def _actors(change: RoleChange, _reader: Reader) -> object:
    if change.proposed_by_id:
        people = {"proposer": account(change, "proposed_by"), "confirmer": account(change, "changed_by")}
        return _("%(proposer)s, confirmed by %(confirmer)s") % people
    if change.changed_by_id:
        return account(change, "changed_by")
    return _("not recorded") if change.kind == RoleChange.Kind.HELD else _("the site's administrators")


ROLE_CHANGES = Listing(
    columns=(
        time_column("when", gettext_lazy("When"), "changed_at", is_minor=True),
        actor_column("person", gettext_lazy("Person"), "user", is_head=True),
        Column("role", gettext_lazy("Role"), lambda change, _reader: change.get_role_display()),
        Column("change", gettext_lazy("Change"), lambda change, _reader: change.get_kind_display()),
        Column("by", gettext_lazy("Changed by"), _actors, is_minor=True),
    ),
    filters=(
        user_filter("person", "user", gettext_lazy("Person")),
        Filter("role", "role", gettext_lazy("Role"), choices=Role.choices),
        *day_filters("changed_at"),
    ),
    ties=("-sequence",),
    default="-when",
    # Not joined, because a join would omit changes whose accounts have been deleted.
    prefetched=("user", "changed_by", "proposed_by"),
    size=20,
)


class MemberForm(forms.Form):
    """Form for assigning one of ``roles`` to someone with an account."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        help_text=gettext_lazy("Choose a person from the list, or type the user name of another account."),
        widget=forms.TextInput(attrs={"list": "accounts", "autocomplete": "off"}),
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
def members(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """Show the people of a study and the log of their roles, with a form for users who may assign roles."""
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
        "accounts": staff().filter(is_active=True) if roles else [],
        "members": MEMBERS.table(MEMBERS.select(memberships), MembersReader(study, request.can, roles)),
        "waiting": [_waiting(study, proposal) for proposal in role_changes_waiting(study)],
        "missing": []
        if study.rehearsal
        else [role.label for role in (Role.CHAIR, Role.AUDITOR) if role not in present],
        "both": [] if study.rehearsal else _operators_and_stewards(memberships),
    }
    if request.user.has_perm("consent.view_rolechange", study):
        changes = RoleChange.objects.filter(study=study)
        context["changes"] = found = ROLE_CHANGES.page(request, changes, Reader(study, request.can))
        if file := found.file(f"{study.slug}-roles"):
            return file
    return render_page(request, study, "staff/people/members.html", context)


class AppointmentForm(forms.Form):
    """Form for assigning one role to an existing or new account."""

    role = forms.ChoiceField(label=gettext_lazy("Role"))
    username = forms.CharField(
        label=gettext_lazy("User name"), max_length=150, validators=User._meta.get_field("username").validators
    )
    first_name = forms.CharField(label=gettext_lazy("First name"), max_length=150, required=False)
    last_name = forms.CharField(label=gettext_lazy("Last name"), max_length=150, required=False)
    email = forms.EmailField(
        label=gettext_lazy("Email address"), max_length=150, required=False, error_messages={"invalid": INVALID_EMAIL}
    )

    def __init__(self, *args: Any, roles: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "–"), *((role, Role(role).label) for role in roles)]
        self.fields["role"].choices = choices  # type: ignore[attr-defined]

    def has_changed(self) -> bool:
        """Return whether a person has been entered. The role is ignored, because each row starts with one."""
        return any(self[name].value() for name in ("username", "first_name", "last_name", "email"))

    @property
    def is_made(self) -> bool:
        """Return whether the row contains all data for a new account; the form must be valid."""
        return all(self.cleaned_data.get(name) for name in ("first_name", "last_name", "email"))


class _Appointments(forms.BaseFormSet):
    def clean(self) -> None:
        """Refuse a row whose account does not exist and cannot be created: data are missing or the name is taken."""
        made: set[str] = set()
        for form in self.forms:
            name = form.cleaned_data.get("username") if form.is_valid() and form.has_changed() else None
            if not name or name in made or account_of_staff(name):
                continue
            if not form.is_made:
                form.add_error(
                    "username",
                    _(
                        "There is no account with this user name. To create one, also enter the person's "
                        "full name and email address."
                    ),
                )
            elif User.objects.filter(username__iexact=name).exists():
                form.add_error("username", _("An account with this name already exists. Choose another."))
            made.add(name)


#: Roles that the rows offer initially, one row for each.
_FIRST_ROLES = (Role.OPERATOR, Role.STEWARD, Role.RESEARCHER, Role.CHAIR, Role.COMMITTEE)
_ROWS = 8


class LeaveForm(forms.Form):
    """Form that asks people who appoint others whether to give up their own roles."""

    leaves = forms.BooleanField(
        label=gettext_lazy("Give up my own role in this study"),
        required=False,
        help_text=gettext_lazy(
            "Recommended for administrators: an account and the person who created it count as one person, so they "
            "cannot approve each other's proposals."
        ),
    )


@study_form("consent.manage_members")
def people_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Create accounts and assign roles in one step, for administrators of the installation."""
    if not request.user.has_perm("consent.manage_accounts"):
        raise PermissionDenied
    roles = roles_given_by(request.user, study)
    rows_class = forms.formset_factory(AppointmentForm, formset=_Appointments, extra=_ROWS, max_num=_ROWS)
    first = [{"role": role} for role in _FIRST_ROLES if role in roles]
    data = request.POST or None
    rows: Any = rows_class(data, prefix="people", form_kwargs={"roles": roles}, initial=first)
    for row in rows:
        row.empty_permitted = True
    leave = LeaveForm(data, initial={"leaves": request.user.is_superuser})
    if data is not None and rows.is_valid() and leave.is_valid():
        appointed = [row.cleaned_data for row in rows if row.has_changed() and row.cleaned_data.get("username")]
        with faults_in(leave):
            waiting = services.people_appoint(
                study=study,
                appointments=[services.Appointment(**each) for each in appointed],
                acting_user=request.user,
                leaves=leave.cleaned_data["leaves"],
            )
            _say(
                request,
                _("The people have been appointed. Owners of new accounts will get an email to choose a password."),
                not waiting,
            )
            return _back(request, study)
    context = {"rows": rows, "leave": leave, "form": leave}
    status = 422 if data is not None else 200
    return render_page(request, study, "staff/people/people_new.html", context, status=status)


@study_form("consent.view_dashboard")
def member_remove(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Ask for confirmation, then remove the role or propose its removal to a second person."""
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
    at_once = needs_no_confirmation(request.user, study, whose=membership.user_id, giving=False)
    context = {"membership": membership, "at_once": at_once}
    return render_page(request, study, "staff/people/member_remove.html", context)


@study_form("consent.view_dashboard")
def role_change(request: SignedInRequest, study: Study, sequence: int) -> HttpResponse:
    """Show a proposed role change, to be confirmed, refused or withdrawn."""
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
        "own_roles": request.user.is_superuser and Membership.objects.filter(study=study, user=request.user).exists(),
        "alone": needs_no_confirmation(
            request.user, study, whose=proposal.user_id, giving=proposal.kind == RoleChange.Kind.TO_GIVE
        ),
    }
    return render_page(request, study, "staff/people/role_change.html", context)


def _say(request: SignedInRequest, done: str, at_once: object) -> None:
    """Show the message that a change is ``done``, or that it is pending."""
    if at_once:
        messages.success(request, done)
    else:
        messages.info(request, _("Proposed. A person who oversees the study has to confirm it."))


def _back(request: SignedInRequest, study: Study) -> HttpResponse:
    """Redirect to the study's people, or to the home page if the user no longer has a role in the study."""
    if not request.user.has_perm("consent.view_dashboard", study):
        return redirect("home")
    return redirect("staff:members", study.slug)


def _can_confirm(study: Study, proposal: RoleChange, person: Any) -> bool:
    """Return whether a supervisor, other than the proposer and the person concerned, can confirm this proposal."""
    concerned = proposal.kind == RoleChange.Kind.TO_GIVE and proposal.user_id == person.pk
    proposer = proposal.changed_by_id
    return not concerned and proposer not in (None, person.pk) and not accounts_are_linked(study, proposer, person.pk)


def _waiting(study: Study, proposal: RoleChange) -> dict[str, Any]:
    """Return a proposal, the people who can confirm it, and the creator of the account that the proposal is about."""
    people = [person for person in members_with_permission(study, CONFIRM) if _can_confirm(study, proposal, person)]
    made = AccountChange.objects.filter(user_id=proposal.user_id, kind=AccountChange.Kind.CREATED)
    return {
        "proposal": proposal,
        "confirming": ", ".join(str(person) for person in people),
        "made_by": made.prefetch_related("changed_by").first(),
    }


def _operators_and_stewards(memberships: Any) -> list[str]:
    """Return the names of people who have both roles, which gives them a duty that no program can enforce."""
    roles = {(membership.user, membership.role) for membership in memberships}
    return [str(user) for user, role in roles if role == Role.OPERATOR and (user, Role.STEWARD) in roles]
