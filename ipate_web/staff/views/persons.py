"""The page between a typed pseudonym and what is recorded: it shows whom the pseudonym names."""

from collections.abc import Iterator, Sequence
from typing import Any

from django import forms
from django.http import HttpResponse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from common.identities import look_alikes, spelling
from common.requests import SignedInRequest
from consent.circumstances import answering_for
from consent.models import Circumstance, DataHolder, Invitation, Study
from consent.pseudonyms import holder_named
from ipate_web.staff.views.pages import render_page

#: Field of the page, which names the person who was shown.
_SHOWN = "person"


def is_confirmed(request: SignedInRequest) -> bool:
    """Whether a form comes from the page that showed the person."""
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
    """Return the page that shows whom a form names, or None once the user has confirmed the person.

    Args:
        request: its data go with the page, so that they are sent again with the confirmation.
        study: the study.
        form: with the field ``pseudonym``; valid but for ``files``.
        action: words of the button that confirms.
        effects: what happens then, a sentence each.
        back: address of the page to go back to.
        files: names of the fields that are filled in on the page, because a browser sends a file only once.
        kind: class of the button.

    Raises:
        ValidationError: nobody in the study has this pseudonym.
    """
    typed = form.cleaned_data["pseudonym"]
    holder = holder_named(study, typed)
    if form.is_valid() and request.POST.get(_SHOWN) == str(holder.public_id):
        return None
    for name in files:
        if not is_confirmed(request):
            form.errors.pop(name, None)  # the page asks for it now
    names = [name for name in form.fields if name not in files]
    context = {
        "form": form,
        "holder": holder,
        "typed": typed,
        "facts": list(_facts(request, holder)),
        "alike": _alike(holder),
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
    """What is known of a person, as far as the reader's role may see it; never what they chose."""
    yield _("In the study since"), _day(holder.created_at)
    if "consent.view_circumstance" in request.can:
        answers = answering_for(holder)
        yield _("Who answers"), str(capfirst(Circumstance.Kind(answers.kind).label))
        if answers.until is not None:
            yield _("The person decides from"), date_format(answers.until)
    if "consent.invite_holders" in request.can:
        has_link = Invitation.objects.filter(holder=holder, revoked_at=None).exists()
        ways = [*([_("an account")] if holder.user_id else []), *([_("a link")] if has_link else [])]
        yield _("How they decide"), ", ".join(ways) or _("neither an account nor a link")
    if holder.erased_at and "consent.view_group_sizes" in request.can:
        yield _("Records erased"), _day(holder.erased_at)


def _alike(holder: DataHolder) -> list[str]:
    """Pseudonyms of others in the study that look like the one of a person."""
    others = DataHolder.objects.filter(study=holder.study_id, erased_at=None).exclude(pk=holder.pk).order_by()
    groups = look_alikes([holder.known_as], others.values_list("pseudonym", flat=True)) if holder.known_as else []
    return [name for group in groups for name in group if name != holder.known_as]


def _day(moment: Any) -> str:
    return date_format(timezone.localtime(moment))


def _words(form: forms.Form, name: str) -> str:
    """Value of a field of a valid form, as people read it."""
    value, field = form.cleaned_data.get(name), form.fields[name]
    if isinstance(field, forms.BooleanField):
        return _("yes") if value else _("no")
    if isinstance(field, forms.ChoiceField):
        return str(dict(field.choices).get(value, value))  # type: ignore[arg-type]
    if isinstance(field, forms.DateField):
        return date_format(value) if value else "–"
    return spelling(value) or "–"
