"""Pages about one person: view their choice, check a receipt, erase their records, and record who answers for them."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from common.identities import look_alikes, spelling
from common.requests import SignedInRequest
from consent.documents.codes import code_faults
from consent.documents.receipts import GROUPS, receipt_event
from consent.models import (
    Circumstance,
    ConsentEvent,
    DataHolder,
    Disposal,
    Invitation,
    Letter,
    LevelAccess,
    LinkReissue,
    Mail,
    Study,
)
from consent.models.recorded import actor_name
from consent.people.circumstances import Lapse, answering_for
from consent.people.pseudonyms import holder_named
from consent.promises.status import holder_status
from consent.selectors import consent_current
from consent.services.erasures import erasure_ask
from consent.services.holders import circumstance_record, holder_level_access
from consent.services.invitations import letter_returned
from ipate_web.lists import (
    Column,
    DayField,
    Filter,
    Listing,
    Reader,
    actor_column,
    day_filters,
    time_column,
    user_filter,
)
from ipate_web.staff.fields import ReasonForm
from ipate_web.staff.pages import Section, faults_in, faults_show, paginate, render_page, study_form, study_page
from training.uses import result_titles

#: Field that identifies the person shown on the page.
_SHOWN = "person"
#: Explanations for staff of why a consent is not valid.
_SAID = {
    None: "",
    Lapse.FORM: gettext_lazy("The consent is suspended until the person has answered the new form."),
    Lapse.EXPIRED: gettext_lazy("The consent has ended and is not valid until the person decides again."),
    Lapse.ANSWERER: gettext_lazy(
        "The consent is not valid, because a different person now answers for these records and has not decided yet."
    ),
    Lapse.INCAPACITY: gettext_lazy("The consent is not valid, because the person is recorded as unable to decide."),
    Lapse.DEATH: gettext_lazy("The consent is not valid, because the person is recorded as having died."),
}


class LevelAccessForm(forms.Form):
    """Form for access to one holder's choice: pseudonym and reason."""

    pseudonym = forms.CharField(label=gettext_lazy("Pseudonym"), max_length=200)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        help_text=gettext_lazy(
            "Why you need to see this person's choice, such as “They called and asked”. This is stored permanently "
            "with your name."
        ),
    )


class ReceiptForm(forms.Form):
    """Form for a receipt's number, or for a code that was read out. Errors name the wrong group of a code."""

    number = forms.CharField(
        label=gettext_lazy("Receipt code or number"),
        max_length=100,
        help_text=gettext_lazy(
            "Enter the three groups of five characters that the caller reads out, or all 64 digits of the number."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def clean_number(self) -> str:
        number = "".join(self.cleaned_data["number"].split()).lower()
        if re.fullmatch("[0-9a-f]{64}", number):
            return number
        if faults := code_faults(self.cleaned_data["number"], GROUPS):
            raise ValidationError(faults)
        return number


class ErasureForm(ReasonForm):
    """Form for erasing the records of one person at their request."""

    pseudonym = forms.CharField(label=gettext_lazy("Pseudonym"), max_length=200)
    field_order = ("pseudonym", "reason")


class CircumstanceForm(forms.Form):
    """Form for one circumstance of one holder."""

    pseudonym = forms.CharField(label=gettext_lazy("Pseudonym"), max_length=200)
    kind = forms.ChoiceField(
        label=gettext_lazy("Current status"),
        choices=[(kind.value, capfirst(kind.label)) for kind in Circumstance.Kind],
        widget=forms.RadioSelect,
    )
    until = DayField(
        label=gettext_lazy("First day on which the person decides for themselves"),
        required=False,
        help_text=gettext_lazy(
            "For a guardian: the day the person comes of age. For a proxy: the day their authority ends, if there is "
            "one. The site does not store dates of birth."
        ),
    )
    reason = forms.CharField(
        label=gettext_lazy("Evidence"),
        max_length=500,
        help_text=gettext_lazy(
            "The evidence you have seen, such as a certificate, and the day it takes effect. This is stored with "
            "your name."
        ),
    )


def is_confirmed(request: SignedInRequest) -> bool:
    """Return whether a form was sent from the page that showed the person."""
    return _SHOWN in request.POST


def person_page(
    request: SignedInRequest,
    study: Study,
    form: forms.Form,
    *,
    action: str,
    effects: Sequence[str],
    back: str,
    files: Sequence[str] = (),
    kind: str = "button-primary",
) -> HttpResponse | None:
    """Return the page that shows the person named in a form, or None once the user has confirmed the person.

    Args:
        request: the request; its data are included in the page, so that they are sent again with the confirmation.
        study: the study.
        form: form with the field ``pseudonym``; it must be valid except for ``files``.
        action: text of the confirmation button.
        effects: the consequences, one sentence each.
        back: URL of the page to go back to.
        files: names of file fields, which are filled in on the new page because browsers send a file only once.
        kind: class of the button.

    Raises:
        ValidationError: no one in the study has this pseudonym.
    """
    typed = form.cleaned_data["pseudonym"]
    holder = holder_named(study, typed)
    if form.is_valid() and request.POST.get(_SHOWN) == str(holder.public_id):
        return None
    for name in files:
        if not is_confirmed(request):
            form.errors.pop(name, None)  # the page now has this field
    names = [name for name in form.fields if name not in files]
    context = {
        "form": form,
        "holder": holder,
        "typed": typed,
        "facts": list(_facts(request, holder)),
        "alike": _similar_pseudonyms(holder),
        "entered": [(form.fields[name].label, _words(form, name)) for name in names if name != "pseudonym"],
        "sent": [(name, value) for name in names for value in request.POST.getlist(name)],
        "files": [form[name] for name in files],
        "action": action,
        "effects": effects,
        "back": back,
        "kind": kind,
    }
    return render_page(request, study, "staff/people/person.html", context)


def _facts(request: SignedInRequest, holder: DataHolder) -> Iterator[tuple[str, str]]:
    """Yield facts about a person that the reader's role may see, but never their choice."""
    yield _("In the study since"), _day(holder.created_at)
    if "consent.view_circumstance" in request.can:
        answers = answering_for(holder)
        yield _("Who answers"), str(capfirst(Circumstance.Kind(answers.kind).label))
        if answers.until is not None:
            yield _("First day on which the person decides for themselves"), date_format(answers.until)
    if "consent.invite_holders" in request.can:
        has_link = Invitation.objects.filter(holder=holder, revoked_at=None).exists()
        ways = [*([_("an account")] if holder.user_id else []), *([_("a link")] if has_link else [])]
        yield _("How they decide"), ", ".join(ways) or _("neither an account nor a link")
    if holder.erased_at and "consent.view_group_sizes" in request.can:
        yield _("Records erased"), _day(holder.erased_at)


def _similar_pseudonyms(holder: DataHolder) -> list[str]:
    """Return pseudonyms of other people in the study that look like this person's."""
    others = DataHolder.objects.filter(study=holder.study_id, erased_at=None).exclude(pk=holder.pk).order_by()
    groups = look_alikes([holder.known_as], others.values_list("pseudonym", flat=True)) if holder.known_as else []
    return [name for group in groups for name in group if name != holder.known_as]


def _day(moment: Any) -> str:
    return date_format(timezone.localtime(moment))


def _words(form: forms.Form, name: str) -> str:
    """Return the value of a valid form's field for display."""
    value, field = form.cleaned_data.get(name), form.fields[name]
    if isinstance(field, forms.BooleanField):
        return _("yes") if value else _("no")
    if isinstance(field, forms.ChoiceField):
        return str(dict(field.choices).get(value, value))  # type: ignore[arg-type]
    if isinstance(field, forms.DateField):
        return date_format(value) if value else "–"
    return spelling(value) or "–"


def person_chosen(request: SignedInRequest, study: Study) -> dict[str, str]:
    """Return initial values for a form opened from a person's page: the pseudonym, looked up by the id in the URL."""
    try:
        holder = DataHolder.objects.filter(study=study, public_id=UUID(request.GET.get("person", ""))).first()
    except ValueError:
        return {}
    return {"pseudonym": holder.known_as} if holder else {}


@study_form("consent.invite_holders")
def person(request: SignedInRequest, study: Study, person: UUID) -> HttpResponse:
    """Show facts about one person, contacts with them, and possible actions, but never their choice.

    A POST records that the letter with the person's link came back.
    """
    holder = get_object_or_404(DataHolder, study=study, public_id=person)
    if request.method == "POST":
        with faults_show(request):
            letter_returned(holder=holder, acting_user=request.user)
            messages.success(request, _("Recorded. Correct the address, then send a new letter."))
        return redirect("staff:person", study.slug, holder.public_id)
    links = Invitation.objects.filter(holder=holder, revoked_at=None)
    answered = ConsentEvent.objects.filter(holder=holder).exists()
    context = {
        "holder": holder,
        "facts": [*_facts(request, holder), (_("Answered"), _("yes") if answered else _("no"))],
        "alike": _similar_pseudonyms(holder),
        "has_letter": links.filter(last_used_at=None, returned_at=None).exists(),
        "events": sorted(_contacts(holder), key=lambda contact: contact[0], reverse=True),
        "actions": [
            (f"{reverse(name, args=[study.slug])}?person={holder.public_id}", text)
            for name, permission, text in _ACTIONS
            if permission in request.can and not holder.erased_at
        ],
    }
    return render_page(request, study, "staff/people/one.html", context)


#: Links on a person's page: URL name, permission, text.
_ACTIONS = (
    ("staff:link_new", "consent.invite_holders", gettext_lazy("A new link for this person")),
    ("staff:circumstances", "consent.record_circumstances", gettext_lazy("Record who answers")),
    ("staff:holder_look", "consent.view_holder_level", gettext_lazy("Look up their choice")),
    ("staff:disposals", "consent.erase_records", gettext_lazy("Have their records erased")),
)


def _contacts(holder: DataHolder) -> Iterator[tuple[datetime, str, str]]:
    """Yield time, kind and outcome of each message to a person, and of each use of their link."""
    for invitation in Invitation.objects.filter(holder=holder):
        yield invitation.created_at, _("Invitation"), _("revoked") if invitation.revoked_at else _("valid")
        if invitation.last_used_at:
            yield invitation.last_used_at, _("Invitation opened"), ""
        if invitation.returned_at:
            yield invitation.returned_at, _("Letter came back"), actor_name(invitation, "returned_by")
    for letter in Letter.objects.filter(holder=holder):
        yield letter.made_at, _("Letter printed"), str(letter.get_kind_display())
    mails = Q(address__holder=holder)
    if holder.user_id:
        mails |= Q(study=holder.study_id, user=holder.user_id)
    for mail in Mail.objects.filter(mails):
        yield mail.created_at, _("Email"), str(mail.get_state_display())


@study_form("consent.view_holder_level")
def holder_look(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for a holder and a reason, then show the choice on this page only."""
    form = LevelAccessForm(request.POST or None, initial=person_chosen(request, study))
    context: dict[str, object] = {"form": form, "looked_at": None}
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, look it up"),
                effects=[_("Your look-up will be logged permanently with your name and the reason.")],
                back=reverse("staff:holder_look", args=[study.slug]),
            )
            if page is not None:
                return page
            event = holder_level_access(study=study, acting_user=request.user, **form.cleaned_data)
            context["current"] = event
            if event is not None and event.grants:
                context["status"] = _SAID[holder_status(event.holder).lapse]
            context["looked_at"] = form.cleaned_data["pseudonym"]
    return render_page(request, study, "staff/people/holder_look.html", context)


@study_form("consent.check_receipt")
def receipt_check(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show whether a receipt is recorded, its holder and its date, but not the decision."""
    form = ReceiptForm(request.POST or None)
    context: dict[str, object] = {"form": form, "event": None}
    if form.is_valid():
        event = receipt_event(form.cleaned_data["number"], study)
        if event is None:
            form.add_error(
                "number", _("This receipt was not found in this study. Ask the caller to read each group again.")
            )
        else:
            last = consent_current(event.holder) == event
            context |= {"event": event, "unchanged": event.computed_hash() == event.hash, "last": last}
    return render_page(request, study, "staff/people/receipt_check.html", context)


def _reasons(when: str, by: str) -> Listing:
    """Return the list of acts on single people, each with its reason."""
    return Listing(
        columns=(
            time_column("when", gettext_lazy("When"), when),
            actor_column("by", gettext_lazy("By"), by, is_head=True),
            Column("person", gettext_lazy("Person"), lambda row, _reader: row.holder),
            Column("reason", gettext_lazy("Reason"), lambda row, _reader: row.reason, kind="words"),
        ),
        filters=(user_filter("by", by, gettext_lazy("By")), *day_filters(when)),
        ties=("-sequence",),
        default="-when",
        prefetched=(by, "holder"),
    )


LOOKS = _reasons("seen_at", "seen_by")
NEW_LINKS = _reasons("issued_at", "issued_by")


@require_safe
@study_page("consent.view_levelaccess")
def holder_looks(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List accesses to single choices, without the choices, or replaced links."""
    links = request.GET.get("record") == "links"
    reader, page = Reader(study, request.can), reverse("staff:holder_looks", args=[study.slug])
    found = (
        NEW_LINKS.page(request, LinkReissue.objects.filter(study=study), reader)
        if links
        else LOOKS.page(request, LevelAccess.objects.filter(study=study), reader)
    )
    if file := found.file(f"{study.slug}-{'links' if links else 'looks'}"):
        return file
    tabs = [Section(page, _("Look-ups"), not links), Section(f"{page}?record=links", _("New links"), links)]
    context = {"list": found, "form": found.form, "links": links, "tabs": tabs}
    return render_page(request, study, "staff/people/holder_looks.html", context)


def _subject(row: Disposal, _reader: Reader) -> object:
    if row.holder is not None:
        return Truncator(row.holder.pseudonym).chars(20)
    return "–" if row.kind == Disposal.Kind.CLOSED else row.subject or "–"


def _titled(rows: list[Disposal]) -> list[Disposal]:
    """Replace digests of results by the titles of their runs."""
    titles = result_titles([row.subject for row in rows if row.kind == Disposal.Kind.RESULT])
    for row in rows:
        row.subject = titles.get(row.subject, row.subject)
    return rows


def _count(name: str, title: Promise) -> Column:
    def cell(row: Disposal, _reader: Reader) -> object:
        return "–" if (number := getattr(row, name)) is None else number

    return Column(name, title, cell, kind="number", is_minor=True)


DISPOSALS = Listing(
    columns=(
        time_column("when", gettext_lazy("When"), "recorded_at"),
        Column(
            "kind", gettext_lazy("Document"), lambda row, _reader: capfirst(str(row.get_kind_display())), is_head=True
        ),
        Column("subject", gettext_lazy("Person or data"), _subject, kind="breakable"),
        _count("rows", gettext_lazy("Rows")),
        _count("files", gettext_lazy("Scans")),
        actor_column("by", gettext_lazy("By"), "recorded_by", is_minor=True),
        Column("reason", gettext_lazy("Reason"), lambda row, _reader: row.reason or "–", is_minor=True),
    ),
    filters=(
        Filter("kind", "kind", gettext_lazy("Document"), choices=Disposal.Kind.choices),
        user_filter("by", "recorded_by", gettext_lazy("By")),
        *day_filters("recorded_at"),
    ),
    ties=("-sequence",),
    default="-when",
    prefetched=("holder", "recorded_by"),
    prepare=_titled,
)


@study_form("consent.view_group_sizes")
def disposals(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List closings and erasures, with a form for data stewards to request the erasure of one person's records."""
    may_erase = request.user.has_perm("consent.erase_records", study)
    if request.method == "POST" and not may_erase:
        raise PermissionDenied
    form = ErasureForm(request.POST or None, initial=person_chosen(request, study))
    if form.is_valid() and (answer := _erasure_request(request, study, form)) is not None:
        return answer
    found = DISPOSALS.page(request, Disposal.objects.filter(study=study), Reader(study, request.can))
    if file := found.file(f"{study.slug}-erasures"):
        return file
    context: dict[str, Any] = {"form": form if may_erase and not study.expired_at else None, "list": found}
    return render_page(request, study, "staff/people/disposals.html", context, status=422 if form.errors else 200)


def _erasure_request(request: SignedInRequest, study: Study, form: ErasureForm) -> HttpResponse | None:
    """Show the person for confirmation or, once confirmed, request the erasure; None if the form has errors."""
    back = reverse("staff:disposals", args=[study.slug])
    with faults_in(form):
        page = person_page(
            request,
            study,
            form,
            action=_("Erase their records"),
            effects=[
                _("The person's rows in all private datasets and the scans of their letters will be erased for good."),
                _("Your name and the reason will be stored permanently."),
            ],
            back=back,
            kind="button-danger",
        )
        if page is not None:
            return page
        holder = holder_named(study, form.cleaned_data["pseudonym"])
        if erasure_ask(holder=holder, acting_user=request.user, reason=form.cleaned_data["reason"]):
            messages.success(
                request, _("This person's records are being erased. The list below will show when this is complete.")
            )
        else:
            messages.info(request, _("The erasure was already requested and is in progress."))
        return redirect(back)
    return None


@study_form("consent.view_circumstance")
def circumstances(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the recorded circumstances, with a form for users who may record more."""
    if request.method == "POST" and not request.user.has_perm("consent.record_circumstances", study):
        raise PermissionDenied
    form = CircumstanceForm(request.POST or None, initial=person_chosen(request, study))
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, record it"),
                effects=[
                    _("This is stored with your name. You cannot undo it, only add another entry."),
                    _effect(study, form.cleaned_data["kind"]),
                ],
                back=reverse("staff:circumstances", args=[study.slug]),
            )
            if page is not None:
                return page
            record = circumstance_record(study=study, acting_user=request.user, **form.cleaned_data)
            message = _("Recorded: %(name)s, %(kind)s.")
            messages.success(request, message % {"name": record.holder, "kind": record.get_kind_display()})
            return redirect("staff:circumstances", study.slug)
    rows = Circumstance.objects.filter(study=study).select_related("holder").prefetch_related("recorded_by")
    context = {"form": form, "page": paginate(request, rows.order_by("-sequence"))}
    return render_page(request, study, "staff/people/circumstances.html", context)


def _effect(study: Study, kind: str) -> str:
    """Return the consequence of a circumstance that is about to be recorded."""
    if kind == Circumstance.Kind.DIED:
        return _("The person's link and account will stop working immediately. %(after)s.") % {
            "after": capfirst(study.get_after_death_display())
        }
    if kind == Circumstance.Kind.INCAPABLE:
        return f"{capfirst(study.get_after_incapacity_display())}."
    return _("If another person answers from now on, earlier links and accounts will stop working immediately.")
