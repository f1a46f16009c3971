"""Pages that end things for good: a person's records, a dataset, a study."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent.models import Disposal, Study
from consent.pseudonyms import holder_named
from consent.services.erasures import erasure_ask
from ipate_web.staff.forms.endings import ClosingForm, ErasureForm, ReasonForm
from ipate_web.staff.views.pages import faults_in, paginate, render_page, study_form
from ipate_web.staff.views.persons import person_page
from training.models import Dataset
from training.results import result_titles
from training.services.closing import dataset_remove, study_close


@study_form("consent.view_group_sizes")
def disposals(request: SignedInRequest, study: Study) -> HttpResponse:
    """List closings and erasures; a data steward asks here for the erasure of one person's records."""
    may_erase = request.user.has_perm("consent.erase_records", study)
    if request.method == "POST" and not may_erase:
        raise PermissionDenied
    form = ErasureForm(request.POST or None)
    if form.is_valid() and (answer := _erasure_request(request, study, form)) is not None:
        return answer
    rows = Disposal.objects.filter(study=study).select_related("holder").order_by("-sequence")
    rows = rows.prefetch_related("recorded_by")  # not joined: that would leave out rows by accounts since deleted
    context: dict[str, Any] = {"form": form if may_erase and not study.expired_at else None}
    context["page"] = page = paginate(request, rows)
    titles = result_titles([row.subject for row in page if row.kind == Disposal.Kind.RESULT])
    for row in page:
        row.subject = titles.get(row.subject, row.subject)
    return render_page(request, study, "staff/people/disposals.html", context, status=422 if form.errors else 200)


def _erasure_request(request: SignedInRequest, study: Study, form: ErasureForm) -> HttpResponse | None:
    """Show the person, then ask for the erasure; None where the form has errors."""
    back = reverse("staff:disposals", args=[study.slug])
    with faults_in(form):
        page = person_page(
            request,
            study,
            form,
            action=_("Yes, erase their records"),
            effects=[
                _("Their rows of all private datasets and the scans of their letters are erased for good."),
                _("It is kept with your name and the reason for good."),
            ],
            back=back,
            kind="button-danger",
        )
        if page is not None:
            return page
        holder = holder_named(study, form.cleaned_data["pseudonym"])
        if erasure_ask(holder=holder, acting_user=request.user, reason=form.cleaned_data["reason"]):
            messages.success(request, _("Their records are being erased. The list below says when it is done."))
        else:
            messages.info(request, _("This was asked for already, and is being done."))
        return redirect(back)
    return None


@study_form("training.remove_dataset")
def dataset_removal(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Explain what it means to remove a dataset, and remove it."""
    dataset = get_object_or_404(Dataset, study=study, pk=pk, removed_at=None)
    form = ReasonForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            dataset_remove(dataset=dataset, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The dataset is removed."))
            return redirect("staff:datasets", study.slug)
    context = {"form": form, "dataset": dataset}
    return render_page(request, study, "staff/datasets/remove.html", context)


@study_form("consent.close_study")
def study_closing(request: SignedInRequest, study: Study) -> HttpResponse:
    """Explain what it means to close a study, and close it."""
    if study.is_closed:
        messages.info(request, _("This study is closed already."))
        return redirect("staff:study", study.slug)
    form = ClosingForm(request.POST or None, study=study)
    if form.is_valid():
        with faults_in(form):
            study_close(
                study=study,
                reason=form.cleaned_data["reason"],
                erase_after=form.last_day,
                acting_user=request.user,
            )
            messages.success(request, _("The study is closed."))
            return redirect("staff:study", study.slug)
    return render_page(request, study, "staff/study/close.html", {"form": form})
