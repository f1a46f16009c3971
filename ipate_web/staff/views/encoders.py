"""Pages of a study's encoders."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.encoders import EncoderForm
from ipate_web.staff.forms.endings import ReasonForm
from ipate_web.staff.views.pages import faults_in, render_page, study_form
from training.models import Encoder
from training.selectors import encoders_seen
from training.services.encoders import encoder_is_used, encoder_register, encoder_withdraw


@study_form("consent.view_dashboard")
def encoders(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the encoders and how far they are with the datasets, and let another be registered."""
    may_register = "training.import_dataset" in request.can and not study.is_closed
    is_sent = request.method == "POST"
    form = EncoderForm(request.POST if is_sent else None, request.FILES if is_sent else None)
    if is_sent and not may_register:
        raise PermissionDenied
    if form.is_valid():
        with faults_in(form):
            encoder_register(study=study, acting_user=request.user, **form.arguments())
            return redirect("staff:encoders", study.slug)
    rows = encoders_seen(study, request.user).select_related("stated_by")
    context = {"encoders": rows, "form": form if may_register else None}
    return render_page(request, study, "staff/datasets/encoders.html", context)


@study_form("training.remove_dataset")
def encoder_withdrawal(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Explain what it means to withdraw an encoder, and withdraw it."""
    encoder = get_object_or_404(Encoder, study=study, pk=pk, withdrawn_at=None)
    form = ReasonForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            encoder_withdraw(encoder=encoder, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The encoder is withdrawn."))
            return redirect("staff:encoders", study.slug)
    context = {"form": form, "encoder": encoder, "used": encoder_is_used(encoder)}
    return render_page(request, study, "staff/datasets/encoder_withdraw.html", context)
