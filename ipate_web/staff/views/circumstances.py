"""Pages of who answers for holders, and of letters on paper."""

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent.models import Circumstance, Letter, Study
from consent.receipts import receipts_pdf
from consent.services.handover import circumstance_record
from consent.services.letters import AT_ONCE, Way, letters_due, letters_print, people_by_way
from ipate_web.staff.forms.circumstances import CircumstanceForm
from ipate_web.staff.forms.invitations import LettersForm
from ipate_web.staff.views.invitations import name_searched, qr_code
from ipate_web.staff.views.pages import faults_in, faults_show, paginate, pdf_answer, render_page, study_form
from ipate_web.staff.views.persons import person_page


@study_form("consent.view_circumstance")
def circumstances(request: SignedInRequest, study: Study) -> HttpResponse:
    """List what is on record; those who may record more find the form above."""
    if request.method == "POST" and not request.user.has_perm("consent.record_circumstances", study):
        raise PermissionDenied
    form = CircumstanceForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, record it"),
                effects=[
                    _("It is kept with your name, and cannot be taken back, only followed by another record."),
                    _effect(study, form.cleaned_data["kind"]),
                ],
                back=reverse("staff:circumstances", args=[study.slug]),
            )
            if page is not None:
                return page
            record = circumstance_record(study=study, acting_user=request.user, **form.cleaned_data)
            message = _("It is on record: %(name)s, %(kind)s.")
            messages.success(request, message % {"name": record.holder, "kind": record.get_kind_display()})
            return redirect("staff:circumstances", study.slug)
    rows = Circumstance.objects.filter(study=study).select_related("holder").prefetch_related("recorded_by")
    context = {"form": form, "page": paginate(request, rows.order_by("-sequence"))}
    return render_page(request, study, "staff/people/circumstances.html", context)


def _effect(study: Study, kind: str) -> str:
    """Say what follows from a circumstance that is about to be recorded."""
    if kind == Circumstance.Kind.DIED:
        return _("Their link and account end at once. %(after)s.") % {
            "after": capfirst(study.get_after_death_display())
        }
    if kind == Circumstance.Kind.INCAPABLE:
        return f"{capfirst(study.get_after_incapacity_display())}."
    return _("Where somebody else answers from now on, earlier links and accounts end at once.")


@study_form("consent.invite_holders")
def letters(request: SignedInRequest, study: Study) -> HttpResponse:
    """Say which letters are due and how each person is told; print letters, whose codes are shown once."""
    if request.method == "POST":
        kind = request.POST.get("kind", "")
        if kind not in Letter.Kind.values:
            raise Http404
        if kind == Letter.Kind.RECEIPT and not request.user.has_perm("consent.view_holder_level", study):
            raise PermissionDenied
        printed = None
        with faults_show(request):
            printed = letters_print(study=study, kind=kind, acting_user=request.user, again="again" in request.POST)
        if printed is None:
            return redirect("staff:letters", study.slug)
        receipts = [letter.event for letter in printed if letter.event]
        if receipts:
            language = request.POST.get("language", "")
            language = language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
            return pdf_answer(receipts_pdf(study, receipts, language), f"receipts-{study.slug}.pdf", is_saved=True)
        context = {
            "kind": Letter.Kind(kind),
            "letters": [(letter, letter.issued and qr_code(letter.issued.link)) for letter in printed],
            "form": LettersForm(study=study, issued=[one.issued for one in printed if one.issued], kind=kind),
        }
        return render_page(request, study, "staff/people/letters_printed.html", context)
    rows = [(kind, len(letters_due(study, kind)), len(letters_due(study, kind, again=True))) for kind in Letter.Kind]
    name = name_searched(request)
    page = paginate(request, people_by_way(study, name))
    context = {
        "kinds": rows,
        "at_once": AT_ONCE,
        "languages": settings.LANGUAGES,
        "language": get_language(),
        "name": name,
        "page": page,
        "people": [(pseudonym, Way(way).label) for pseudonym, way in page],
    }
    return render_page(request, study, "staff/people/letters.html", context)
