"""Pages for setting up a study: five initial questions, then its settings in parts."""

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.forms import BoundField
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from common.requests import SignedInRequest
from consent import services
from consent.forms import INVALID_EMAIL
from consent.languages import is_variant, translated_name
from consent.models import Study
from consent.services import study_slug_check
from consent.wording.facts import FACTS, INSTEAD, TRANSLATED, TRANSLATED_FACTS, facts_missing, facts_of
from ipate_web.lists import DayInput
from ipate_web.staff.pages import Section, faults_in, faults_show, render_page, study_form

#: Facts that do not change if their field is left empty.
_KEPT_WHERE_UNSAID = ("lawful_basis", "after_withdrawal", "after_death", "after_incapacity")
_SHORT_TEXTS = (
    "controller_address",
    "data_protection_officer",
    "supervisory_authority",
    "data_categories",
    "data_source",
    "recipients",
    "retention",
    "mail_opening",
)
#: Name of the part with all facts that people must receive and that the study has not stated yet.
_MISSING = "missing"
#: The ethics committee writes the example of harm, on its own page.
_TRANSLATED_HERE = tuple(name for name in TRANSLATED if name != "harm")


@dataclass(frozen=True)
class Part:
    """Part of a study's settings: its name in URLs, its title, and its fields."""

    name: str
    title: Promise
    fields: tuple[str, ...]


PARTS = (
    Part("about", gettext_lazy("About the study"), ("title", "purpose", "mail_opening", "languages")),
    Part(
        "contact",
        gettext_lazy("Organisation and contact"),
        (
            *("controller", "controller_address", "contact", "contact_name", "contact_telephone", "contact_hours"),
            *("data_protection_officer", "without_officer", "supervisory_authority"),
        ),
    ),
    Part(
        "data",
        gettext_lazy("Data"),
        ("data_categories", "data_source", "recipients", "without_recipients", "retention", "retention_until"),
    ),
    Part(
        "law",
        gettext_lazy("Law and consent"),
        ("lawful_basis", "jurisdiction", "after_withdrawal", "after_death", "after_incapacity"),
    ),
    Part("privacy", gettext_lazy("Privacy and budget"), ("delta", "budget_warning", "retain_votes")),
)


class StudyForm(forms.ModelForm):
    """Form for the settings in ``only`` (default: all) except the settings in ``fixed``."""

    languages = forms.CharField(
        label=gettext_lazy("Languages"),
        initial=settings.LANGUAGE_CODE,
        required=False,
        help_text=Study._meta.get_field("languages").help_text,
    )

    class Meta:
        model = Study
        fields = [name for part in PARTS for name in part.fields]
        widgets = {
            "purpose": forms.Textarea(attrs={"rows": 4}),
            **dict.fromkeys(_SHORT_TEXTS, forms.Textarea(attrs={"rows": 2})),
            "retention_until": DayInput(),
        }
        error_messages = {"contact": {"invalid": INVALID_EMAIL}}

    def __init__(self, *args: Any, only: Collection[str] = (), fixed: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in [name for name in self.fields if only and name not in only]:
            del self.fields[name]
        if "languages" in self.fields:
            self.initial["languages"] = " ".join(self.instance.languages)
        for name in _KEPT_WHERE_UNSAID:
            if name in self.fields:
                self.fields[name].required = False
        self._add_translations()
        for name in fixed:
            self.fields.pop(name, None)
        if self.instance.rehearsal:
            self.fields.pop("budget_warning", None)  # a rehearsal does not make promises
        for name in ("delta", "budget_warning"):
            if name in self.fields:
                self.fields[name].widget.attrs |= {"step": "any", "inputmode": "decimal"}
        if "delta" in self.fields:
            self.fields["delta"].label = "δ"  # otherwise it would be capitalised as Δ

    def _add_translations(self) -> None:
        """Add a field for each text of the form in each other language of the site or the study."""
        codes = dict.fromkeys([*(code for code, _name in settings.LANGUAGES), *self.instance.languages])
        self.other_languages = [code for code in codes if code != settings.LANGUAGE_CODE and not is_variant(code)]
        for code in self.other_languages:
            texts = self.instance.translations.get(code, {})
            for name in [name for name in _TRANSLATED_HERE if name in self.fields]:
                label = f"{self.fields[name].label} ({translated_name(code)})"
                rows = 4 if name == "purpose" else 2
                short = isinstance(self.fields[name].widget, forms.TextInput)
                widget = forms.TextInput if short else forms.Textarea
                attrs = {"lang": code} if short else {"lang": code, "rows": rows}
                self.fields[f"{name}_{code}"] = forms.CharField(
                    label=label, required=False, initial=texts.get(name, ""), widget=widget(attrs=attrs)
                )

    @property
    def rows(self) -> list[list[BoundField]]:
        """Return the fields in order, each followed by the same text in the other languages."""
        names = [name for name in self.Meta.fields if name in self.fields]
        twins = {name: [f"{name}_{code}" for code in self.other_languages] for name in names}
        return [[self[each] for each in (name, *twins[name]) if each in self.fields] for name in names]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for name in _KEPT_WHERE_UNSAID:
            if name in cleaned:
                cleaned[name] = cleaned[name] or getattr(self.instance, name)
        translations = {}
        for code in self.other_languages:
            known = self.instance.translations.get(code, {})
            texts = {name: cleaned.pop(f"{name}_{code}", known.get(name, "")).strip() for name in TRANSLATED}
            translations[code] = {name: text for name, text in texts.items() if text}
        cleaned["translations"] = {code: texts for code, texts in translations.items() if texts}
        return cleaned

    def clean_languages(self) -> list[str]:
        codes = self.cleaned_data["languages"].lower().replace(",", " ").split()
        return list(dict.fromkeys(codes)) or self.instance.languages


class FactsForm(StudyForm):
    """Form for the facts in the next version of a consent form; ``study`` is the study with the draft's facts."""

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data, instance=study, only=FACTS)
        for name in [f"{name}_{code}" for name in {*TRANSLATED} - {*TRANSLATED_FACTS} for code in self.other_languages]:
            self.fields.pop(name, None)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts as entered; the form must be valid."""
        changed = copy(self.instance)
        for name, value in self.cleaned_data.items():
            setattr(changed, name, value)
        return facts_of(changed)


class NewStudyForm(forms.ModelForm):
    """Form with the five initial questions about a new study. The settings contain everything else."""

    rehearsal = forms.ChoiceField(
        label=gettext_lazy("Whose data will the study use?"),
        required=False,
        initial="",
        choices=(
            ("", gettext_lazy("Data about people, who are asked for their consent")),
            (
                "on",
                gettext_lazy(
                    "Data that is not secret: a rehearsal, which asks no one for consent and makes no promises"
                ),
            ),
        ),
        widget=forms.RadioSelect,
        help_text=gettext_lazy("You cannot change this later."),
    )

    class Meta:
        model = Study
        fields = ("title", "purpose", "controller", "contact", "rehearsal", "slug")
        labels = {
            "title": gettext_lazy("What is the study called?"),
            "purpose": gettext_lazy("What is the study for?"),
            "controller": gettext_lazy("Which organisation is responsible for the study?"),
            "contact": gettext_lazy("Which email address can people write to?"),
        }
        help_texts = {"controller": "", "contact": ""}
        widgets = {"purpose": forms.Textarea(attrs={"rows": 3})}
        error_messages = {"contact": {"invalid": INVALID_EMAIL}}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["slug"].required = False
        self.fields["slug"].error_messages["invalid"] = _("Use only letters, digits, hyphens and underscores.")
        self.questions = [field for field in self.visible_fields() if field.name != "slug"]

    def clean_rehearsal(self) -> bool:
        return self.cleaned_data["rehearsal"] == "on"

    def clean_slug(self) -> str:
        slug = self.cleaned_data["slug"] or _free_slug(self.cleaned_data.get("title", ""))
        study_slug_check(slug)
        return slug


def _free_slug(title: str) -> str:
    """Return an unused short name for a study with this title."""
    base = slugify(title)[:40].strip("-") or "study"
    taken = set(Study.objects.filter(slug__startswith=base).values_list("slug", flat=True)) | {"new"}
    return next(
        slug for slug in (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))) if slug not in taken
    )


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def study_new(request: SignedInRequest) -> HttpResponse:
    """Create a study. Its creator becomes operator and, in a rehearsal study, also data steward."""
    if not request.user.has_perm("consent.add_study"):
        raise PermissionDenied
    form = NewStudyForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            study = services.study_create(acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("Study created. The list below shows the next steps."))
            if not study.rehearsal and request.user.is_superuser:
                return redirect("staff:people_new", study.slug)
            return redirect("staff:study", study.slug)
    return render(request, "staff/study/new.html", {"form": form}, status=422 if form.errors else 200)


@study_form("consent.change_study")
def study_edit(request: SignedInRequest, study: Study, part: str = "") -> HttpResponse:
    """Change one part of a study's settings.

    This is ``part`` or else the part that contains the field named in the URL. If neither is given, it is all missing
    facts or, if none are missing, the first part. All settings can be changed until holders can decide, and only a few
    after that.
    """
    settled = services.study_fixed(study)
    parts = [each for each in PARTS if not {*each.fields} <= {*settled}]
    missing = facts_missing(study)
    lacking = {each.field for each in missing}
    if lacking:
        fields = {name for each in lacking for name in (each, INSTEAD.get(each, each))}
        wanting = tuple(name for each in PARTS for name in each.fields if name in fields)
        parts = [Part(_MISSING, gettext_lazy("What is missing"), wanting), *parts]
    chosen = next((each for each in parts if each.name == part), None)
    if chosen is None and part == _MISSING:
        return redirect("staff:study_edit", study.slug)
    if chosen is None and part:
        raise Http404
    wanted = request.GET.get("field")
    chosen = chosen or next((each for each in parts if wanted in each.fields), parts[0])
    form = StudyForm(request.POST or None, instance=copy(study), only=chosen.fields, fixed=settled)
    if form.is_valid():
        with faults_show(request):  # a form or policy came into force while the page was open
            services.study_update(study=study, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("Changes saved."))
            return redirect("staff:study", study.slug)
        return redirect("staff:study_edit", study.slug)
    addresses = {each: reverse("staff:study_edit", args=[study.slug, each.name]) for each in parts}
    context = {
        "form": form,
        "settled": settled,
        "part": chosen,
        "missing": [each for each in missing if each.field in chosen.fields],
        "parts": [Section(address, each.title, each == chosen) for each, address in addresses.items()],
    }
    return render_page(request, study, "staff/study/edit.html", context)
