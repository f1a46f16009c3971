"""Pages for inviting people: single links, lists, and everyone at once."""

import unicodedata
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Q
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from common.requests import SignedInRequest
from consent.models import ConsentEvent, Invitation, Study
from consent.people.pseudonyms import Invited, invitees_read, look_alikes_in, look_alikes_text
from consent.services import study_asks_check
from consent.services.invitations import (
    IssuedInvitation,
    invitation_revoke,
    invitations_create,
    link_reissue,
    unanswered_holders,
    uninvited_holders,
)
from ipate_web.lists import Column, Filter, Listing, Reader, action_link, choices_keep, day_column, newest_or_oldest
from ipate_web.staff.letters import MOST, SHOWN, LettersForm, csv_link, qr_code
from ipate_web.staff.pages import faults_in, faults_show, render_page, study_form, study_page
from ipate_web.staff.people import person_chosen, person_page

#: Largest number of invitations created in one transaction, which takes seconds. The command has no such limit.
AT_ONCE = 20_000
#: Maximum number of rows in each list that the page offers as a file, because browsers limit a file's URL to 2 MB.
LISTED = 5000
#: Number of days without an answer after which invited people can be reminded.
REMINDED_AFTER = 14


def _state(invitation: Invitation, _reader: Reader) -> str:
    if not invitation.revoked_at:
        return _("valid")
    by = invitation.revoked_by_id
    if by and invitation.holder and by == invitation.holder.user_id:
        return _("replaced by an account")
    return _("revoked")


def _holder(invitation: Invitation, reader: Reader) -> SafeString | str:
    if invitation.holder is None:
        return _("not opened yet")
    address = reverse("staff:person", args=[reader.study.slug, invitation.holder.public_id])
    return format_html('<a href="{}">{}</a>', address, invitation.holder)


#: Whether the invited person has decided.
_ANSWERED = Exists(ConsentEvent.objects.filter(holder=OuterRef("holder")))


def _revoke(invitation: Invitation, reader: Reader) -> SafeString | str:
    if invitation.revoked_at:
        return ""
    address = reverse("staff:invitation_revoke", args=[reader.study.slug, invitation.pk])
    return action_link(address, _("Revoke"), invitation)


INVITATIONS = Listing(
    columns=(
        Column(
            "holder",
            gettext_lazy("Data holder"),
            _holder,
            fields=("holder__pseudonym", "holder__user", "holder__erased_at", "holder__public_id"),
            is_head=True,
        ),
        day_column(
            "made",
            gettext_lazy("Created"),
            "created_at",
            orders=newest_or_oldest("made", "created_at"),
            is_minor=True,
        ),
        day_column("opened", gettext_lazy("Last opened"), "last_used_at", never=gettext_lazy("never"), is_minor=True),
        Column(
            "answered",
            gettext_lazy("Answered"),
            lambda invitation, _reader: _("yes") if invitation.has_answered else _("no"),
            values={"has_answered": _ANSWERED},
        ),
        Column("state", gettext_lazy("State"), _state, fields=("revoked_at", "revoked_by")),
        Column("actions", gettext_lazy("Actions"), _revoke, fields=("revoked_at",), kind="number", is_silent=True),
    ),
    filters=(
        Filter(
            "name",
            lambda name: Q(holder__pseudonym__icontains=unicodedata.normalize("NFC", name)),
            gettext_lazy("Pseudonym, or part of it"),
            is_private=True,
        ),
        Filter(
            "answered",
            lambda answered: Q(_ANSWERED) if answered == "yes" else ~Q(_ANSWERED),
            gettext_lazy("Answered"),
            choices=(("yes", gettext_lazy("yes")), ("no", gettext_lazy("no"))),
        ),
    ),
    ties=("-created_at", "-pk"),
)


class InvitationsForm(forms.Form):
    """Form for issuing invitations: pseudonyms, one per line, and the number of open invitations."""

    pseudonyms = forms.CharField(
        label=gettext_lazy("Pseudonyms"),
        required=False,
        help_text=gettext_lazy(
            "Enter one pseudonym per line, as in the data. New ones are added as data holders. If another person "
            "answers for some of them, start with a line of column names, such as "
            "pseudonym,answers,until,language,address. Then write rows such as P-17,guardian,2031-05-04 (a parent or "
            "guardian until the day the person comes of age), P-18,proxy or P-19,person,,de,Erika Example; 1 Street; "
            "12345 Town. Language and address are used only for the letter and are not stored."
        ),
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
    )
    open_places = forms.IntegerField(
        label=gettext_lazy("Open invitations"),
        required=False,
        initial=0,
        min_value=0,
        max_value=AT_ONCE,
        help_text=gettext_lazy(
            "Invitations for people who are not known yet. Opening such an invitation creates a new data holder."
        ),
    )
    replace = forms.BooleanField(
        label=gettext_lazy("Replace earlier invitations"),
        required=False,
        help_text=gettext_lazy("Use this if a letter got lost. The old link will stop working."),
    )

    different = forms.BooleanField(label=gettext_lazy("Similar pseudonyms belong to different people"), required=False)

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        self.study, self._asked = study, self.fields.pop("different")

    def clean(self) -> dict[str, Any]:
        pseudonyms: list[Invited] = []
        try:
            pseudonyms = invitees_read(self.cleaned_data.get("pseudonyms", ""))
        except ValidationError as error:
            self.add_error("pseudonyms", error)
        places = self.cleaned_data.get("open_places") or 0
        if not self.errors and not 0 < len(pseudonyms) + places <= AT_ONCE:
            raise ValidationError(
                gettext_lazy(
                    "Enter pseudonyms or a number of open invitations, at most %(most)d in total. The command "
                    "“invite” can create more."
                )
                % {"most": AT_ONCE}
            )
        if not self.errors:
            study_asks_check(self.study)
            self._look_alikes_check([each.pseudonym for each in pseudonyms])
        return {**self.cleaned_data, "pseudonyms": pseudonyms, "open_places": places}

    def _look_alikes_check(self, names: Sequence[str]) -> None:
        """Report new pseudonyms that look like others, and ask whether they are different people."""
        groups = look_alikes_in(self.study, names)
        if groups:
            self.fields["different"] = self._asked
        if groups and not self.data.get("different"):
            message = gettext_lazy(
                "Some new pseudonyms are similar to others. Correct them, or confirm that they belong to different "
                "people."
            )
            self.add_error("pseudonyms", [str(message), *look_alikes_text(groups)])


class LinkForm(forms.Form):
    """Form for replacing a lost link: pseudonym and reason."""

    pseudonym = forms.CharField(label=gettext_lazy("Pseudonym"), max_length=200)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        help_text=gettext_lazy(
            "Why a new link is needed, and how you made sure that the request came from this person. This is stored "
            "permanently with your name."
        ),
    )


def _letters(request: SignedInRequest, study: Study, issued: list[IssuedInvitation], left_out: int = 0) -> HttpResponse:
    """Show the letters for new invitations, whose codes are shown only once.

    Many letters are split into several forms.
    """
    few = len(issued) <= MOST
    parts = [] if few else [issued[start : start + MOST] for start in range(0, len(issued), MOST)]
    context = {
        "made": len(issued),
        "letters": [(new, qr_code(new.link)) for new in issued[:SHOWN]] if few else [],
        "form": LettersForm(study=study, issued=issued) if few else None,
        "parts": [
            (1 + number * MOST, part, LettersForm(study=study, issued=part, auto_id=f"id_{number}_%s"))
            for number, part in enumerate(parts)
        ],
        "lists": [
            (1 + start, min(start + LISTED, len(issued)), csv_link(part))
            for start in range(0, len(issued), LISTED)
            if (part := issued[start : start + LISTED])
        ],
        "left_out": left_out,
    }
    return render_page(request, study, "staff/people/invitations_issued.html", context)


@study_form("consent.invite_holders")
def link_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for a holder and a reason, then show a new link once, to replace a lost one. This is logged."""
    form = LinkForm(request.POST or None, initial=person_chosen(request, study))
    if form.is_valid():
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, create a new link"),
                effects=[
                    _("This person's earlier links will stop working immediately. Their decision remains valid."),
                    _("Your name and the reason will be stored permanently."),
                ],
                back=reverse("staff:link_new", args=[study.slug]),
            )
            if page is not None:
                return page
            return _letters(request, study, [link_reissue(study=study, acting_user=request.user, **form.cleaned_data)])
    return render_page(request, study, "staff/people/link_new.html", {"form": form})


@study_form("consent.invite_holders")
def invitations(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the invitations, with a form to issue more. The letters for new ones are shown only once."""
    form = InvitationsForm(request.POST or None, study=study)
    if form.is_valid():
        try:
            issued = invitations_create(study=study, acting_user=request.user, **form.cleaned_data)
        except ValidationError as error:
            form.add_error("pseudonyms", error)
        else:
            wanted = (
                len({each.pseudonym for each in form.cleaned_data["pseudonyms"]}) + form.cleaned_data["open_places"]
            )
            return _letters(request, study, issued, left_out=wanted - len(issued))
    found = INVITATIONS.page(request, Invitation.objects.filter(study=study), Reader(study, request.can))
    if file := found.file(f"{study.slug}-invitations"):
        return file
    context = {
        "form": form,
        "list": found,
        "uninvited": uninvited_holders(study).count(),
        "silent": unanswered_holders(study, timezone.now() - timedelta(days=REMINDED_AFTER)).count(),
    }
    return render_page(request, study, "staff/people/invitations.html", context)


@require_POST
@study_page("consent.invite_holders")
def people_search(request: SignedInRequest, study: Study) -> HttpResponse:
    """Search a list for a pseudonym without putting the pseudonym into a URL."""
    page = request.POST.get("page")
    if page not in ("invitations", "letters"):
        raise Http404
    return redirect(choices_keep(request, reverse(f"staff:{page}", args=[study.slug]), "name"))


@study_form("consent.invite_holders")
def invitations_everyone(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for confirmation, then invite everyone who has not been invited yet."""
    waiting = list(uninvited_holders(study).values_list("pseudonym", flat=True)[: AT_ONCE + 1])
    now = waiting[:AT_ONCE]
    if request.method == "POST":
        with faults_show(request):
            return _letters(request, study, invitations_create(study=study, acting_user=request.user, pseudonyms=now))
        return redirect("staff:invitations", study.slug)
    context = {"now": len(now), "most": AT_ONCE, "more": len(waiting) > AT_ONCE}
    return render_page(request, study, "staff/people/invite_everyone.html", context)


@study_form("consent.invite_holders")
def invitations_remind(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask for confirmation, then create new letters for everyone who was invited some time ago and has not answered."""
    silent = unanswered_holders(study, timezone.now() - timedelta(days=REMINDED_AFTER))
    waiting = list(silent.values_list("pseudonym", flat=True)[: AT_ONCE + 1])
    now = waiting[:AT_ONCE]
    if request.method == "POST":
        with faults_show(request):
            issued = invitations_create(study=study, acting_user=request.user, pseudonyms=now, replace=True)
            return _letters(request, study, issued)
        return redirect("staff:invitations", study.slug)
    context = {"now": len(now), "days": REMINDED_AFTER, "most": AT_ONCE, "more": len(waiting) > AT_ONCE}
    return render_page(request, study, "staff/people/remind.html", context)


@study_form("consent.invite_holders")
def invitation_revoked(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Ask for confirmation, then revoke an invitation."""
    invitation = get_object_or_404(Invitation.objects.select_related("holder"), study=study, pk=pk, revoked_at=None)
    if request.method == "POST":
        invitation_revoke(invitation=invitation, acting_user=request.user)
        messages.success(request, _("Invitation revoked."))
        return redirect("staff:invitations", study.slug)
    return render_page(request, study, "staff/people/invitation_revoke.html", {"invitation": invitation})
