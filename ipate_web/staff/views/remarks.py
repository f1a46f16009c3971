"""Comments on proposals and their rejection, on the pages where they are approved."""

from django.contrib import messages
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent import services
from consent.models import ConsentFormProposal, EpsilonPolicy, Remark
from ipate_web.staff.forms.remarks import RemarkForm
from ipate_web.staff.views.pages import faults_in


def remark_form(request: SignedInRequest) -> RemarkForm:
    """Form for a remark, bound if one was sent."""
    return RemarkForm(request.POST if {"comment", "reject"} & request.POST.keys() else None)


def remark_make(request: SignedInRequest, proposal: EpsilonPolicy | ConsentFormProposal, form: RemarkForm) -> bool:
    """Record the remark that was sent, or say on the page why not."""
    if not form.is_valid():
        return False
    rejects = "reject" in request.POST
    kind = Remark.Kind.REJECTION if rejects else Remark.Kind.COMMENT
    with faults_in(form):
        services.proposal_remark(proposal=proposal, acting_user=request.user, kind=kind, text=form.cleaned_data["text"])
        messages.success(request, _("The proposal is rejected.") if rejects else _("Your comment is kept."))
        return True
    return False
