"""Pages of the roles in a study: who has which, and who gave it to them."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from common.requests import SignedInRequest
from consent import services
from consent.models import Membership, RoleChange, Study
from consent.permissions import roles_given_by
from ipate_web.staff.forms.studies import MemberForm
from ipate_web.staff.views.pages import paginate, render_page, study_page


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.view_dashboard")
def members(request: SignedInRequest, study: Study) -> HttpResponse:
    """The people of a study and the record of their roles; those who may give roles find the form below."""
    roles = roles_given_by(request.user, study)
    form = MemberForm(request.POST or None, roles=roles)
    if request.method == "POST" and not roles:
        raise PermissionDenied
    if form.is_valid():
        user, role = form.cleaned_data["username"], form.cleaned_data["role"]
        try:
            membership = services.membership_add(study=study, user=user, role=role, acting_user=request.user)
        except ValidationError as error:
            form.add_error(None, error.messages)
        else:
            messages.success(
                request, _("%(user)s is now %(role)s.") % {"user": user, "role": membership.get_role_display()}
            )
            return redirect("staff:members", study.slug)
    memberships = Membership.objects.filter(study=study).select_related("user").order_by("user__username", "role")
    context = {"form": form, "roles": roles, "memberships": memberships}
    if request.user.has_perm("consent.view_rolechange", study):
        # Not joined: that would leave out the changes whose accounts have been deleted.
        changes = RoleChange.objects.filter(study=study).prefetch_related("user", "changed_by").order_by("-sequence")
        context["page"] = paginate(request, changes, 20)
    return render_page(request, study, "staff/people/members.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.view_dashboard")
def member_remove(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Are you sure? Then the role is gone."""
    roles = roles_given_by(request.user, study)
    if not roles:
        raise PermissionDenied
    membership = get_object_or_404(Membership.objects.select_related("user", "study"), study=study, pk=pk)
    if membership.role not in roles:
        raise PermissionDenied
    if request.method == "POST":
        try:
            services.membership_remove(membership=membership, acting_user=request.user)
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            messages.success(request, _("The role is taken away."))
        if not request.user.has_perm("consent.view_dashboard", study):
            return redirect("home")
        return redirect("staff:members", study.slug)
    return render_page(request, study, "staff/people/member_remove.html", {"membership": membership})
