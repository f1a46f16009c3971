"""Head counts: what plans rest on; drawn with noise, or entered as public numbers."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from accounting.head_counts import head_counts as head_counts_of
from accounting.models import Release
from accounting.shares import share_free
from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.head_counts import HeadCountForm
from ipate_web.staff.views.pages import faults_show, number_sent, render_page, study_form
from training.engine.drawings import SHARE, drawing_last, drawing_plan
from training.services.head_counts import head_counts_draw, head_counts_enter


@study_form("training.approve_run")
def head_counts(request: SignedInRequest, study: Study) -> HttpResponse:
    """The counts that plans use now, how to draw others, and a form for public numbers; none for a rehearsal."""
    if study.rehearsal:
        raise Http404
    form = HeadCountForm(request.POST if "enter" in request.POST else None)
    if request.method == "POST":
        with faults_show(request):
            if "draw" in request.POST:
                head_counts_draw(study=study, acting_user=request.user, follows=number_sent(request.POST, "follows"))
                messages.success(request, _("The head counts are drawn. Plans use them from now on."))
                return redirect("staff:head_counts", study.slug)
            if form.is_valid():
                head_counts_enter(study=study, acting_user=request.user, counts=form.counts())
                messages.success(request, _("The numbers are entered. Plans use them from now on."))
                return redirect("staff:head_counts", study.slug)
    context: dict[str, Any] = {
        "form": form,
        "counts": head_counts_of(study),
        "follows": drawing_last(study, Release.Kind.HEAD_COUNTS),
        "share": SHARE,
        "share_free": share_free(study),
    }
    try:
        context["drawing"] = drawing_plan(study)
    except ValidationError as error:
        context["no_drawing"] = " ".join(error.messages)
    return render_page(request, study, "staff/study/head_counts.html", context)
