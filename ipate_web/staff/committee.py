"""The ethics committee's page, and remarks on proposals."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.requests import SignedInRequest
from consent import services
from consent.committee import committee_state
from consent.languages import translated_name
from consent.models import ConflictOfInterest, ConsentFormProposal, EpsilonPolicy, Remark, Study
from consent.models.studies import HARM_LENGTH
from ipate_web.staff.pages import faults_in, render_page, study_form

#: Permission needed for each button of the page.
_NEEDED = {
    "harm": "consent.propose_epsilonpolicy",
    "quorum_set": "consent.appoint_committee",
    "conflict": "consent.approve_epsilonpolicy",
}


class HarmForm(forms.Form):
    """Form for the study's example of harm, one field for each language."""

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        codes = dict.fromkeys([*study.languages, *(code for code, _name in settings.LANGUAGES)])
        self.codes = list(codes)
        for code in self.codes:
            harm = study.translations.get(code, {}).get("harm", "")
            self.fields[f"harm_{code}"] = forms.CharField(
                label=f"{capfirst(Study._meta.get_field('harm').verbose_name)} ({translated_name(code)})",
                required=code in study.languages,
                max_length=HARM_LENGTH,
                initial=study.harm if code == settings.LANGUAGE_CODE else harm,
                help_text=Study._meta.get_field("harm").help_text if code == self.codes[0] else "",
                widget=forms.Textarea(attrs={"rows": 3, "lang": code}),
            )

    @property
    def texts(self) -> dict[str, str]:
        """Return the example by language code; the form must be valid."""
        return {code: self.cleaned_data[f"harm_{code}"] for code in self.codes}


class QuorumForm(forms.Form):
    """Form for the number of approvals that a proposal needs."""

    quorum = forms.IntegerField(
        label=capfirst(Study._meta.get_field("quorum").verbose_name),
        min_value=1,
        max_value=9,
        help_text=Study._meta.get_field("quorum").help_text,
    )


class ConflictForm(forms.Form):
    """Form for declaring a conflict of interest."""

    reason = forms.CharField(
        label=capfirst(ConflictOfInterest._meta.get_field("reason").verbose_name),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy(
            "This is logged with your name and cannot be undone. From then on, you cannot approve anything in this "
            "study."
        ),
    )


class RemarkForm(forms.Form):
    """Form for a comment or a reason."""

    text = forms.CharField(
        label=gettext_lazy("Comment, or reason for rejecting"),
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("This is stored permanently with the proposal and your name."),
    )


def remark_form(request: SignedInRequest) -> RemarkForm:
    """Return the form for a remark, bound if a remark was submitted."""
    return RemarkForm(request.POST if {"comment", "reject"} & request.POST.keys() else None)


def remark_make(request: SignedInRequest, proposal: EpsilonPolicy | ConsentFormProposal, form: RemarkForm) -> bool:
    """Record the submitted remark, or show the reason for its refusal."""
    if not form.is_valid():
        return False
    rejects = "reject" in request.POST
    kind = Remark.Kind.REJECTION if rejects else Remark.Kind.COMMENT
    with faults_in(form):
        services.proposal_remark(proposal=proposal, acting_user=request.user, kind=kind, text=form.cleaned_data["text"])
        messages.success(request, _("Proposal rejected.") if rejects else _("Your comment has been saved."))
        return True
    return False


@study_form("consent.view_dashboard")
def committee(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show rules in force, proposals and decisions, with forms for the example of harm, quorum and conflicts."""
    pressed = next((name for name in _NEEDED if name in request.POST), None)
    if request.method == "POST" and (pressed is None or _NEEDED[pressed] not in request.can):
        raise PermissionDenied
    form: dict[str, Any] = {
        "harm": HarmForm(request.POST if pressed == "harm" else None, study=study),
        "quorum_set": QuorumForm(request.POST if pressed == "quorum_set" else None, initial={"quorum": study.quorum}),
        "conflict": ConflictForm(request.POST if pressed == "conflict" else None),
    }
    if pressed is not None and form[pressed].is_valid() and _done(request, study, pressed, form[pressed]):
        return redirect("staff:study" if pressed == "harm" else "staff:committee", study.slug)
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
    """Carry out the request, or show the error in the form."""
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
        messages.success(request, _("This is logged."))
        return True
    return False
