"""Pages to invite data holders; decisions are not shown here."""

import csv
import io
from urllib.parse import quote

import segno
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from common.requests import SignedInRequest
from consent.models import Invitation, Study
from consent.services.invitations import (
    IssuedInvitation,
    holders_uninvited,
    invitation_revoke,
    invitations_create,
    link_reissue,
)
from ipate_web.staff.forms.invitations import MOST, InvitationsForm, LinkForm
from ipate_web.staff.views.pages import paginate, render_page, study_page


def qr_code(link: str) -> SafeString:
    """QR code of a link as SVG, in the colour of the surrounding text."""
    svg = segno.make(link, error="m").svg_inline(scale=4, border=4, dark="#000", light="#fff", omitsize=True)
    return mark_safe(svg.replace("<svg ", '<svg aria-hidden="true" ', 1))  # noqa: S308 – drawn here


def _csv(issued: list[IssuedInvitation]) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["pseudonym", "code", "link"])
    writer.writerows((new.pseudonym, new.code, new.link) for new in issued)
    return file.getvalue()


def _letters(request: SignedInRequest, study: Study, issued: list[IssuedInvitation], left_out: int = 0) -> HttpResponse:
    """The letters of new invitations, whose codes are shown only now."""
    context = {
        "letters": [(new, qr_code(new.link)) for new in issued],
        "csv": "data:text/csv;charset=utf-8," + quote(_csv(issued)),
        "left_out": left_out,
        "site": settings.SITE_URL.rstrip("/"),
    }
    return render_page(request, study, "staff/people/invitations_issued.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.invite_holders")
def link_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for a holder and a reason, and show a new link in place of a lost one, once; it is on record."""
    form = LinkForm(request.POST or None)
    if form.is_valid():
        try:
            return _letters(request, study, [link_reissue(study=study, acting_user=request.user, **form.cleaned_data)])
        except ValidationError as error:
            form.add_error(None, error)
    return render_page(request, study, "staff/people/link_new.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.invite_holders")
def invitations(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the invitations; the form issues more and shows their letters once."""
    form = InvitationsForm(request.POST or None)
    if form.is_valid():
        try:
            issued = invitations_create(study=study, acting_user=request.user, **form.cleaned_data)
        except ValidationError as error:
            form.add_error("pseudonyms", error)
        else:
            wanted = (
                len({each.pseudonym for each in form.cleaned_data["pseudonyms"]}) + form.cleaned_data["open_places"]
            )
            return _letters(request, study, issued, left_out=wanted - len(issued))
    rows = Invitation.objects.filter(study=study).select_related("holder")
    context = {"form": form, "page": paginate(request, rows), "uninvited": holders_uninvited(study).count()}
    return render_page(request, study, "staff/people/invitations.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.invite_holders")
def invitations_everyone(request: SignedInRequest, study: Study) -> HttpResponse:
    """Confirm and invite everybody who was not invited yet, as many as a page of letters takes."""
    waiting = list(holders_uninvited(study).values_list("pseudonym", flat=True)[: MOST + 1])
    now = waiting[:MOST]
    if request.method == "POST":
        try:
            return _letters(request, study, invitations_create(study=study, acting_user=request.user, pseudonyms=now))
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
            return redirect("staff:invitations", study.slug)
    context = {"now": len(now), "most": MOST, "more": len(waiting) > MOST}
    return render_page(request, study, "staff/people/invite_everyone.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.invite_holders")
def invitation_revoked(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Confirm and revoke an invitation."""
    invitation = get_object_or_404(Invitation.objects.select_related("holder"), study=study, pk=pk, revoked_at=None)
    if request.method == "POST":
        invitation_revoke(invitation=invitation, acting_user=request.user)
        messages.success(request, _("The invitation is revoked."))
        return redirect("staff:invitations", study.slug)
    return render_page(request, study, "staff/people/invitation_revoke.html", {"invitation": invitation})
