"""Pages to invite data holders; decisions are not shown here."""

import io
import unicodedata
from urllib.parse import quote

import segno
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from common.requests import SignedInRequest
from common.spreadsheets import CsvWriter
from consent import letter_documents as documents
from consent.models import Invitation, Letterhead, Study
from consent.paper_documents import sample_form_pdf
from consent.receipts import sample_receipt_pdf
from consent.services.invitations import (
    IssuedInvitation,
    invitation_revoke,
    invitations_create,
    link_reissue,
    uninvited_holders,
)
from consent.services.letterheads import letterhead_of, letterhead_save
from ipate_web.staff.forms.invitations import AT_ONCE, MOST, InvitationsForm, LetterheadForm, LettersForm, LinkForm
from ipate_web.staff.views.pages import (
    faults_in,
    faults_show,
    paginate,
    pdf_answer,
    render_page,
    study_form,
    study_page,
)
from ipate_web.staff.views.persons import person_page

#: Rows of a list that is saved from the page: browsers take no longer address of a file than 2 MB.
LISTED = 5000


def name_searched(request: SignedInRequest) -> str:
    """Pseudonym, or a part of it, that a list is searched for; empty where it is not."""
    name = request.GET.get("name", "").replace("\0", "")  # PostgreSQL takes no text with a zero character
    return unicodedata.normalize("NFC", name).strip()


def qr_code(link: str) -> SafeString:
    """QR code of a link as SVG, in the colour of the surrounding text."""
    svg = segno.make(link, error="m").svg_inline(scale=4, border=4, dark="#000", light="#fff", omitsize=True)
    return mark_safe(svg.replace("<svg ", '<svg aria-hidden="true" ', 1))  # noqa: S308 – drawn here


def _csv(issued: list[IssuedInvitation]) -> str:
    file = io.StringIO()
    writer = CsvWriter(file)
    writer.writerow(["pseudonym", "code", "link"])
    writer.writerows((new.pseudonym, new.code, new.link) for new in issued)
    return file.getvalue()


def _letters(request: SignedInRequest, study: Study, issued: list[IssuedInvitation], left_out: int = 0) -> HttpResponse:
    """The letters of new invitations, whose codes are shown only now; of many their lists, and forms for parts."""
    few = len(issued) <= MOST
    parts = [] if few else [issued[start : start + MOST] for start in range(0, len(issued), MOST)]
    context = {
        "made": len(issued),
        "letters": [(new, qr_code(new.link)) for new in issued] if few else [],
        "form": LettersForm(study=study, issued=issued) if few else None,
        "parts": [
            (1 + number * MOST, part, LettersForm(study=study, issued=part, auto_id=f"id_{number}_%s"))
            for number, part in enumerate(parts)
        ],
        "lists": [
            (1 + start, min(start + LISTED, len(issued)), f"data:text/csv;charset=utf-8,{quote(_csv(part))}")
            for start in range(0, len(issued), LISTED)
            if (part := issued[start : start + LISTED])
        ],
        "left_out": left_out,
    }
    return render_page(request, study, "staff/people/invitations_issued.html", context)


@sensitive_post_parameters("letters")
@require_POST
@study_page("consent.invite_holders")
def letters_pdf(request: SignedInRequest, study: Study) -> HttpResponse:
    """Make the letters of the codes that a page has just shown, as PDF; the codes come with the request alone."""
    form = LettersForm(request.POST, study=study)
    written = form.written if form.is_valid() else []
    if not written:
        if form.is_valid():
            form.add_error(None, _("None of these codes opens anything any more: newer ones replaced them."))
        return render_page(request, study, "staff/people/letters_again.html", {"form": form}, status=422)
    answer_by = form.cleaned_data["answer_by"]
    pdf = documents.letters_pdf(study, written, answer_by, forms=form.forms(written, answer_by))
    return pdf_answer(pdf, f"letters-{study.slug}.pdf", is_saved=True)


#: What can be seen before it is saved: name, and what makes it of a study, letterhead and language.
SAMPLES = {
    "letter": (gettext_lazy("Preview of a letter"), documents.sample_pdf),
    "form": (gettext_lazy("Preview of the form on paper"), sample_form_pdf),
    "receipt": (gettext_lazy("Preview of a receipt"), sample_receipt_pdf),
}


def _sample(
    request: SignedInRequest, study: Study, head: Letterhead, kind: str = "letter", language: str = ""
) -> HttpResponse:
    """Sample of a letter, form or receipt, with a letterhead that is not saved."""
    if kind not in SAMPLES or language not in dict(settings.LANGUAGES):
        raise Http404
    try:
        pdf = SAMPLES[kind][1](study, head, language)
    except LookupError:
        messages.info(
            request,
            _("The study has no consent form and ε policy in force yet: without both there is no form and no receipt."),
        )
        return redirect("staff:letterhead", study.slug)
    return pdf_answer(pdf, f"sample-{study.slug}.pdf", is_saved=False)


@study_form("consent.change_study")
def letterhead(request: SignedInRequest, study: Study) -> HttpResponse:
    """Change the words and the logo of the letters; a preview shows what is not saved yet."""
    head = letterhead_of(study)
    form = LetterheadForm(request.POST or None, request.FILES or None, study=study, head=head)
    if form.is_valid():
        if "preview" in request.POST:
            shown = Letterhead(study=study, texts=form.texts, logo=form.logo)
            return _sample(request, study, shown, *request.POST["preview"].split("-", 1))
        letterhead_save(study=study, texts=form.texts, logo=form.logo, acting_user=request.user)
        messages.success(request, _("The changes are saved."))
        return redirect("staff:letterhead", study.slug)
    context = {
        "form": form,
        "head": head,
        "languages": settings.LANGUAGES,
        "samples": [(kind, name) for kind, (name, _pdf) in SAMPLES.items()],
    }
    return render_page(request, study, "staff/people/letterhead.html", context)


@study_form("consent.invite_holders")
def link_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for a holder and a reason, and show a new link in place of a lost one, once; it is on record."""
    form = LinkForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, make a new link"),
                effects=[
                    _("Every earlier link of theirs ends at once; what they decided stays."),
                    _("It is kept with your name and the reason for good."),
                ],
                back=reverse("staff:link_new", args=[study.slug]),
            )
            if page is not None:
                return page
            return _letters(request, study, [link_reissue(study=study, acting_user=request.user, **form.cleaned_data)])
    return render_page(request, study, "staff/people/link_new.html", {"form": form})


@study_form("consent.invite_holders")
def invitations(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the invitations; the form issues more and shows their letters once."""
    form = InvitationsForm(request.POST or None, study=study)
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
    rows, name = Invitation.objects.filter(study=study).select_related("holder"), name_searched(request)
    if name:
        rows = rows.filter(holder__pseudonym__icontains=name)
    context = {
        "form": form,
        "name": name,
        "page": paginate(request, rows),
        "uninvited": uninvited_holders(study).count(),
    }
    return render_page(request, study, "staff/people/invitations.html", context)


@study_form("consent.invite_holders")
def invitations_everyone(request: SignedInRequest, study: Study) -> HttpResponse:
    """Confirm and invite everybody who was not invited yet."""
    waiting = list(uninvited_holders(study).values_list("pseudonym", flat=True)[: AT_ONCE + 1])
    now = waiting[:AT_ONCE]
    if request.method == "POST":
        with faults_show(request):
            return _letters(request, study, invitations_create(study=study, acting_user=request.user, pseudonyms=now))
        return redirect("staff:invitations", study.slug)
    context = {"now": len(now), "most": AT_ONCE, "more": len(waiting) > AT_ONCE}
    return render_page(request, study, "staff/people/invite_everyone.html", context)


@study_form("consent.invite_holders")
def invitation_revoked(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Confirm and revoke an invitation."""
    invitation = get_object_or_404(Invitation.objects.select_related("holder"), study=study, pk=pk, revoked_at=None)
    if request.method == "POST":
        invitation_revoke(invitation=invitation, acting_user=request.user)
        messages.success(request, _("The invitation is revoked."))
        return redirect("staff:invitations", study.slug)
    return render_page(request, study, "staff/people/invitation_revoke.html", {"invitation": invitation})
