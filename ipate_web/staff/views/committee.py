"""Home page of a study's ethics committee."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent import services
from consent.committee import committee_state
from consent.models import Study
from ipate_web.staff.forms.committee import ConflictForm, HarmForm, QuorumForm
from ipate_web.staff.views.pages import faults_in, render_page, study_form

#: What each button of the page needs.
_NEEDED = {
    "harm": "consent.propose_epsilonpolicy",
    "quorum_set": "consent.appoint_committee",
    "conflict": "consent.approve_epsilonpolicy",
}


@study_form("consent.view_dashboard")
def committee(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show what stands, waits and was decided; write the example of harm, set the quorum, declare a conflict."""
    pressed = next((name for name in _NEEDED if name in request.POST), None)
    if request.method == "POST" and (pressed is None or _NEEDED[pressed] not in request.can):
        raise PermissionDenied
    form: dict[str, Any] = {
        "harm": HarmForm(request.POST if pressed == "harm" else None, study=study),
        "quorum_set": QuorumForm(request.POST if pressed == "quorum_set" else None, initial={"quorum": study.quorum}),
        "conflict": ConflictForm(request.POST if pressed == "conflict" else None),
    }
    if pressed is not None and form[pressed].is_valid() and _done(request, study, pressed, form[pressed]):
        return redirect("staff:committee", study.slug)
    state = committee_state(study)
    context = {
        "state": state,
        "harm_form": form["harm"],
        "quorum_form": form["quorum_set"],
        "conflict_form": form["conflict"],
        "has_conflict": any(each.user_id == request.user.pk for each in state.conflicts),
        "form": form[pressed] if pressed else None,
    }
    return render_page(request, study, "staff/committee/committee.html", context)


def _done(request: SignedInRequest, study: Study, pressed: str, form: Any) -> bool:
    """Do what was asked for, or say on the form why not."""
    acts: dict[str, Callable[[], object]] = {
        "harm": lambda: services.harm_write(study=study, acting_user=request.user, texts=form.texts),
        "quorum_set": lambda: services.quorum_set(
            study=study, acting_user=request.user, quorum=form.cleaned_data["quorum"]
        ),
        "conflict": lambda: services.conflict_declare(
            study=study, acting_user=request.user, reason=form.cleaned_data["reason"]
        ),
    }
    with faults_in(form):
        acts[pressed]()
        messages.success(request, _("It is on record."))
        return True
    return False
