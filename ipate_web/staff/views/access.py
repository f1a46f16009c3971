"""Pages to look at one holder's choice, to list such accesses, and to check a receipt."""

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.circumstances import Lapse
from consent.models import LevelAccess, LinkReissue, Study
from consent.receipts import receipt_event
from consent.selectors import consent_current
from consent.services.access import holder_level_access
from consent.standing import standing
from ipate_web.staff.forms.access import LevelAccessForm, ReceiptForm
from ipate_web.staff.views.pages import faults_in, paginate, render_page, study_form, study_page
from ipate_web.staff.views.persons import person_page

#: What staff are told of a consent that does not count.
_SAID = {
    None: "",
    Lapse.FORM: gettext_lazy("It does not count until they have answered the new form."),
    Lapse.EXPIRED: gettext_lazy("It has ended, and does not count until they decide again."),
    Lapse.ANSWERER: gettext_lazy("It does not count: somebody else answers now, and has not decided."),
    Lapse.INCAPACITY: gettext_lazy("It does not count: it is on record that they cannot decide."),
    Lapse.DEATH: gettext_lazy("It does not count: it is on record that they have died."),
}


@study_form("consent.view_holder_level")
def holder_look(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for a holder and a reason, and show the choice on this page only."""
    form = LevelAccessForm(request.POST or None)
    context: dict[str, object] = {"form": form}
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, look"),
                effects=[_("Your look is on record for good, with your name and the reason.")],
                back=reverse("staff:holder_look", args=[study.slug]),
            )
            if page is not None:
                return page
            event = holder_level_access(study=study, acting_user=request.user, **form.cleaned_data)
            context["current"] = event
            if event is not None and event.grants:
                context["stands"] = _SAID[standing(event.holder).lapse]
            context["looked_at"] = form.cleaned_data["pseudonym"]
    return render_page(request, study, "staff/people/holder_look.html", context)


@study_form("consent.check_receipt")
def receipt_check(request: SignedInRequest, study: Study) -> HttpResponse:
    """Say whether a receipt is on record, and whose and of when it is; what was decided is not shown."""
    form = ReceiptForm(request.POST or None)
    context: dict[str, object] = {"form": form}
    if form.is_valid():
        event = receipt_event(form.cleaned_data["number"], study)
        if event is None:
            form.add_error("number", _("No decision of this study has this receipt. Ask for each group again."))
        else:
            last = consent_current(event.holder) == event
            context |= {"event": event, "unchanged": event.computed_hash() == event.hash, "last": last}
    return render_page(request, study, "staff/people/receipt_check.html", context)


@require_safe
@study_page("consent.view_levelaccess")
def holder_looks(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the accesses to single choices and the new links to them, newest first, without the choices."""
    looks = LevelAccess.objects.filter(study=study).select_related("holder").order_by("-sequence")
    looks = looks.prefetch_related("seen_by")  # not joined: that would leave out looks by accounts since deleted
    links = LinkReissue.objects.filter(study=study).select_related("holder").order_by("-sequence")
    context = {"page": paginate(request, looks), "links": links.prefetch_related("issued_by")}
    return render_page(request, study, "staff/people/holder_looks.html", context)
