"""Who has which role in a study."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from consent import services
from consent.models import Membership, Study
from ipate_web.requests import SignedInRequest
from training.forms.studies import MemberForm
from training.views.pages import render_page, study_page


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.view_dashboard")
def members(request: SignedInRequest, study: Study) -> HttpResponse:
    """The people of a study; those who may give roles find the form below."""
    form = MemberForm(request.POST or None)
    if request.method == "POST" and not request.user.has_perm("consent.manage_members", study):
        raise PermissionDenied
    if form.is_valid():
        user, role = form.cleaned_data["username"], form.cleaned_data["role"]
        membership = services.membership_add(study=study, user=user, role=role)
        messages.success(
            request, _("%(user)s is now %(role)s.") % {"user": user, "role": membership.get_role_display()}
        )
        return redirect("training:members", study.slug)
    memberships = Membership.objects.filter(study=study).select_related("user").order_by("user__username", "role")
    context = {"form": form, "memberships": memberships}
    return render_page(request, study, "training/members.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.manage_members")
def member_remove(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Are you sure? Then the role is gone."""
    membership = get_object_or_404(Membership.objects.select_related("user"), study=study, pk=pk)
    if request.method == "POST":
        try:
            services.membership_remove(membership=membership)
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            messages.success(request, _("The role is taken away."))
        if not request.user.has_perm("consent.view_dashboard", study):
            return redirect("home")
        return redirect("training:members", study.slug)
    return render_page(request, study, "training/member_remove.html", {"membership": membership})
