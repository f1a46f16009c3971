"""Pages for alliances between studies and for their joint runs."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models.functions import Lower
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from common.requests import SignedInRequest
from common.templatetags.moments import moment
from consent.models import Study
from ipate_web.lists import Column, Listing, Reader
from ipate_web.staff.pages import faults_in, faults_show, render_page, study_form, study_page
from training.alliances import renewals, services
from training.alliances.approvals import form_describes
from training.alliances.runs import joint_run_decline, joint_run_go_on, joint_run_propose, joint_run_take
from training.alliances.selectors import hub_fingerprint, participant_rows, pending_sites, remaining_sites
from training.alliances.services import private_datasets
from training.alliances.wire import invitation_write
from training.models import Alliance, Dataset, JointRun, Run
from training.selectors import runs_visible_to

#: Methods that a hub can propose on its page. Votes of teachers need choices that only the API accepts.
_METHODS = (Run.Method.SGD, Run.Method.NEIGHBOURS, Run.Method.COUNTS, Run.Method.SYNTHESIS)
_MAY = "training.manage_alliances"
_ACTS = {"sign": services.alliance_sign, "tell": services.alliance_add_to_form, "join": services.alliance_join}


def _name(alliance: Alliance, reader: Reader) -> SafeString:
    address = reverse("staff:alliance", args=[reader.study.slug, alliance.pk])
    return format_html('<a href="{}">{}</a>', address, alliance.name)


def _hub(alliance: Alliance, _reader: Reader) -> str:
    return _("this study") if alliance.is_hub else alliance.terms.get("hub", "–")


ALLIANCES = Listing(
    columns=(
        Column(
            "name",
            gettext_lazy("Name"),
            _name,
            orders={"name": (gettext_lazy("name"), Lower("name").asc())},
            is_head=True,
        ),
        Column("hub", gettext_lazy("Hub"), _hub),
        Column("site", gettext_lazy("This site's name"), lambda row, _reader: row.own_name or "–", is_minor=True),
        Column("ended", gettext_lazy("Ended"), lambda row, _reader: moment(row.left_at)),
    ),
    ties=("name", "pk"),
)


class FoundForm(forms.Form):
    """Form for creating an alliance at its hub."""

    prefix = "found"

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    sites = forms.CharField(
        label=gettext_lazy("Sites"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("One name per line, as people should see it. Each site gets an invitation."),
    )
    colluding = forms.IntegerField(
        label=gettext_lazy("Sites that may collude"),
        min_value=0,
        initial=1,
        help_text=Alliance._meta.get_field("colluding").help_text,
    )
    public = forms.ModelChoiceField(
        label=gettext_lazy("Public points"),
        queryset=Dataset.objects.none(),
        help_text=gettext_lazy("The schema of these points applies to all sites."),
    )

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        self.fields["public"].queryset = datasets(study, Dataset.Kind.PUBLIC)  # type: ignore[attr-defined]

    def clean_sites(self) -> list[str]:
        names = [line.strip() for line in self.cleaned_data["sites"].splitlines()]
        return [name for name in names if name]


class RenewalForm(forms.Form):
    """Form for the hub to request a new key from a site."""

    site = forms.ChoiceField(label=gettext_lazy("Site"))

    def __init__(self, data: Any = None, *, alliance: Alliance) -> None:
        super().__init__(data)
        names = alliance.sites.filter(left_at=None).values_list("name", flat=True)
        self.fields["site"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


class InvitationForm(forms.Form):
    """Form for registering a new key at a site."""

    invitation = forms.CharField(
        label=gettext_lazy("Invitation"),
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("The invitation that the hub gave you, preferably by phone or in person."),
    )


class ConnectForm(InvitationForm):
    """Form for accepting a hub's invitation at a site."""

    prefix = "connect"

    certificate = forms.CharField(
        label=gettext_lazy("Hub certificate"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=Alliance._meta.get_field("certificate").help_text,
    )


class _ChoicesField(forms.JSONField):
    """Choices as JSON. Omitted choices are shown as an empty field."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class JointRunForm(forms.Form):
    """Form for proposing a joint run at the hub."""

    title = forms.CharField(label=gettext_lazy("Title"), max_length=200)
    purpose = forms.CharField(label=gettext_lazy("Purpose"), required=False, widget=forms.Textarea(attrs={"rows": 2}))
    method = forms.ChoiceField(
        label=gettext_lazy("Method"), choices=[(name, Run.Method(name).label) for name in _METHODS]
    )
    choices = _ChoicesField(
        label=gettext_lazy("Method parameters"),
        required=False,
        initial=dict,
        help_text=gettext_lazy(
            'As JSON, such as {"steps": 15}; the API documentation lists the parameters. Leave empty for the defaults.'
        ),
    )
    mode = forms.ChoiceField(label=gettext_lazy("Mode"), choices=JointRun.Mode.choices, widget=forms.RadioSelect)
    sites = forms.MultipleChoiceField(label=gettext_lazy("Sites"), widget=forms.CheckboxSelectMultiple)
    public_dataset = forms.ModelChoiceField(
        label=gettext_lazy("Public points"),
        queryset=Dataset.objects.none(),
        required=False,
        help_text=gettext_lazy("Not needed for counting people."),
    )
    test_dataset = forms.ModelChoiceField(
        label=gettext_lazy("Evaluation data"), queryset=Dataset.objects.none(), required=False
    )

    def __init__(self, data: Any = None, *, alliance: Alliance) -> None:
        super().__init__(data)
        names = [site.name for site in alliance.sites.all() if site.is_eligible]
        self.fields["choices"].widget.attrs |= {"rows": 2, "spellcheck": "false"}
        self.fields["sites"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.fields["sites"].initial = names
        self.fields["mode"].initial = JointRun.Mode.TOGETHER
        for field, kind in (("public_dataset", Dataset.Kind.PUBLIC), ("test_dataset", Dataset.Kind.TEST)):
            found = datasets(alliance.study, kind)
            self.fields[field].queryset, self.fields[field].initial = found, found.first()  # type: ignore[attr-defined]

    def clean_choices(self) -> dict[str, Any]:
        chosen = self.cleaned_data["choices"] or {}
        if not isinstance(chosen, dict):
            raise ValidationError(gettext_lazy("Enter names and values in braces, as JSON."))
        return chosen


class TakeForm(forms.Form):
    """Form for accepting, at a site, a run proposed by the hub."""

    private_dataset = forms.ModelChoiceField(label=gettext_lazy("Private dataset"), queryset=Dataset.objects.none())

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        found = private_datasets(study)
        self.fields["private_dataset"].queryset = found  # type: ignore[attr-defined]
        self.fields["private_dataset"].initial = found.first()


def datasets(study: Study, kind: str) -> Any:
    """Return the existing datasets of a kind."""
    return Dataset.objects.filter(study=study, kind=kind, removed_at=None)


@study_form("consent.view_dashboard")
def alliances(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the alliances, with forms to create one or to accept an invitation."""
    may = _MAY in request.can and not study.is_closed and not study.rehearsal
    is_sent = request.method == "POST"
    if is_sent and not may:
        raise PermissionDenied
    founds, connects = "found" in request.POST, "connect" in request.POST
    found = FoundForm(request.POST if founds else None, study=study)
    connect = ConnectForm(request.POST if connects else None)
    with faults_in(found if founds else connect):
        if founds and found.is_valid():
            public = found.cleaned_data.pop("public")
            made, codes = services.alliance_create(
                study=study, acting_user=request.user, schema_of=public, public=public, **found.cleaned_data
            )
            invited = [(name, invitation_write(made, code, settings.SITE_URL)) for name, code in codes.items()]
            return render_page(request, study, "staff/alliances/made.html", {"alliance": made, "invitations": invited})
        if connects and connect.is_valid():
            made = services.alliance_connect(study=study, acting_user=request.user, **connect.cleaned_data)
            return redirect("staff:alliance", study.slug, made.pk)
    listed = ALLIANCES.page(request, Alliance.objects.filter(study=study), Reader(study, request.can))
    if file := listed.file(f"{study.slug}-alliances"):
        return file
    context = {
        "list": listed,
        "found": found if may else None,
        "connect": connect if may else None,
    }
    status = 422 if found.errors or connect.errors else 200
    return render_page(request, study, "staff/alliances/alliances.html", context, status=status)


@require_safe
@study_page("consent.view_dashboard")
def alliance(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Show an alliance: keys, sites, common facts, and possible next steps."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk)
    context: dict[str, Any] = {
        "alliance": found,
        "participants": participant_rows(found),
        "hub_fingerprint": hub_fingerprint(found),
        "waiting": renewals.renewals_waiting(found),
        "may": _MAY in request.can and found.left_at is None and not study.is_closed,
        "runs": found.runs.all(),
    }
    if not found.is_hub:
        context |= {"differences": services.schema_differences(found), "form_describes": form_describes(found)}
    return render_page(request, study, "staff/alliances/alliance.html", context)


@require_POST
@study_page(_MAY)
def alliance_act(request: SignedInRequest, study: Study, pk: int, act: str) -> HttpResponse:
    """Sign an alliance at its hub; at a site, describe it in the consent form, or join it."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk)
    if act not in _ACTS or (act == "sign") != found.is_hub:
        raise Http404
    with faults_show(request):
        done = _ACTS[act](alliance=found, acting_user=request.user)
        if act == "tell" and done is not None:
            messages.success(
                request, _("The draft of the next version mentions the alliance. You can propose that draft here.")
            )
            return redirect("staff:consent_forms", study.slug)
        messages.success(request, _("Done."))
    return redirect("staff:alliance", study.slug, pk)


@study_form(_MAY)
def alliance_leaving(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Explain the effects of leaving an alliance (or, at its hub, of ending it); on POST, leave or end it."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk, left_at=None)
    if request.method == "POST":
        services.alliance_leave(alliance=found, acting_user=request.user)
        messages.success(request, _("This study has left the alliance."))
        return redirect("staff:alliance", study.slug, pk)
    return render_page(request, study, "staff/alliances/leave.html", {"alliance": found})


@study_form(_MAY)
def alliance_keys(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Replace a site's key: the hub requests it, the site registers it, and all sides compare and confirm it."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk, left_at=None)
    if not found.is_signed:
        raise Http404
    data = request.POST if {"site", "invitation"} & set(request.POST) else None
    form: Any = RenewalForm(data, alliance=found) if found.is_hub else InvitationForm(data)
    with faults_show(request) if data is None else faults_in(form):
        if "fingerprint" in request.POST:
            renewals.renewal_confirm(
                alliance=found, new_fingerprint=request.POST["fingerprint"], acting_user=request.user
            )
            messages.success(request, _("The new key is confirmed."))
            return redirect("staff:alliance", study.slug, pk)
        if "drop" in request.POST:
            renewals.renewal_drop(alliance=found, acting_user=request.user)
            messages.success(request, _("The key is unchanged."))
            return redirect("staff:alliance", study.slug, pk)
        if form.is_valid() and found.is_hub:
            code = renewals.renewal_propose(alliance=found, acting_user=request.user, **form.cleaned_data)
            invitation = invitation_write(found, code, settings.SITE_URL)
            context = {"alliance": found, "invitations": [(form.cleaned_data["site"], invitation)], "is_renewal": True}
            return render_page(request, study, "staff/alliances/made.html", context)
        if form.is_valid():
            renewals.identity_renew(alliance=found, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The new key is registered. Read its fingerprint out to the hub by phone."))
            return redirect("staff:alliance_keys", study.slug, pk)
    if request.method == "POST" and data is None:
        return redirect("staff:alliance_keys", study.slug, pk)
    waiting = renewals.renewals_waiting(found)
    context = {
        "alliance": found,
        "form": form,
        "waiting": waiting,
        "is_own": any(each.proposed_by == request.user.pk for each in waiting),
        "own": renewals.own_renewal(found),
    }
    return render_page(request, study, "staff/alliances/keys.html", context)


@study_form("training.propose_run")
def joint_run_new(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Propose a joint run at the hub."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk, own_name="", left_at=None)
    form = JointRunForm(request.POST or None, alliance=found)
    if form.is_valid():
        with faults_in(form):
            run = joint_run_propose(alliance=found, acting_user=request.user, **form.cleaned_data)
            return redirect("staff:run", study.slug, run.pk)
    context = {"alliance": found, "form": form}
    return render_page(request, study, "staff/alliances/run.html", context)


@study_form("training.cancel_run")
def joint_run_without(request: SignedInRequest, study: Study, pk: str, place: int) -> HttpResponse:
    """Explain the effect of continuing a run without a site that it is waiting for; on POST, continue it."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk, alliance__own_name="")
    waiting = next((each for each in pending_sites(run) if each.place == place), None)
    if waiting is None:
        messages.info(request, _("The run no longer waits for this site."))
        return redirect("staff:run", study.slug, run.pk)
    if request.method == "POST":
        with faults_show(request):
            joint_run_go_on(run=run, without=waiting.name, acting_user=request.user)
            messages.success(request, _("The run continues without this site."))
        return redirect("staff:run", study.slug, run.pk)
    context = {"run": run, "waiting": waiting, "left": remaining_sites(run, waiting.name)}
    return render_page(request, study, "staff/runs/without.html", context)


@study_form("training.propose_run")
def joint_run_taking(request: SignedInRequest, study: Study, pk: int, number: str) -> HttpResponse:
    """Accept a run proposed by the hub as a draft of this site."""
    found = get_object_or_404(Alliance.objects.select_related("study"), study=study, pk=pk, left_at=None)
    if number not in found.open_proposals:
        raise Http404
    if "decline" in request.POST:
        if "training.cancel_run" not in request.can:
            raise PermissionDenied
        joint_run_decline(alliance=found, number=number, acting_user=request.user)
        messages.success(request, _("The run was declined, and the hub will be notified."))
        return redirect("staff:alliance", study.slug, pk)
    form = TakeForm(request.POST or None, study=study)
    if form.is_valid():
        with faults_in(form):
            run = joint_run_take(alliance=found, number=number, acting_user=request.user, **form.cleaned_data)
            return redirect("staff:run", study.slug, run.pk)
    context = {"alliance": found, "form": form, "proposal": services.proposal_document(found, number)}
    return render_page(request, study, "staff/alliances/take.html", context)
