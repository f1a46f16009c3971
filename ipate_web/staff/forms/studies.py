"""Forms for a study's settings, members and consent form."""

from collections.abc import Iterable
from copy import copy
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext_lazy as _

from consent.facts import FACTS, TRANSLATED_FACTS, facts_of
from consent.forms import INVALID_EMAIL
from consent.languages import is_variant, translated_name
from consent.models import ConsentForm, ConsentFormDraft, Renewal, Role, Study
from consent.models.actors import actor_name
from consent.selectors import consent_form_languages
from consent.services import Valid, draft_facts, form_digest, study_slug_check
from consent.services.accounts import account_of_staff
from consent.services.consent_forms import OBJECTION_DAYS
from consent.study_texts import TRANSLATED
from ipate_web.staff.forms.fields import AnswerField, DayField, DayInput

#: Whoever says nothing leaves these as they are.
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
#: Where in the facts the contact's details follow.
_CONTACT = FACTS.index("contact") + 1
#: An alliance is told by those who sign it, on its own page.
_FURTHER = tuple(name for name in FACTS[_CONTACT:] if name != "alliance")
#: The example of harm is the ethics committee's to write, on its own page.
_TRANSLATED_HERE = tuple(name for name in TRANSLATED if name != "harm")


class StudyForm(forms.ModelForm):
    """Form for a study's settings, without the fields named in ``fixed``."""

    languages = forms.CharField(
        label=_("Languages"),
        initial=settings.LANGUAGE_CODE,
        required=False,
        help_text=Study._meta.get_field("languages").help_text,
    )

    class Meta:
        model = Study
        fields = [
            "title",
            "slug",
            *FACTS[:_CONTACT],
            *("contact_name", "contact_telephone", "contact_hours"),
            *_FURTHER,
            "mail_opening",
            "languages",
            "delta",
            "rehearsal",
            "retain_votes",
            "budget_warning",
        ]
        widgets = {
            "purpose": forms.Textarea(attrs={"rows": 4}),
            **dict.fromkeys(_SHORT_TEXTS, forms.Textarea(attrs={"rows": 2})),
            "retention_until": DayInput(),
        }
        error_messages = {"contact": {"invalid": INVALID_EMAIL}}

    def __init__(self, *args: Any, fixed: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["languages"] = " ".join(self.instance.languages)
        for name in _KEPT_WHERE_UNSAID:
            self.fields[name].required = False
        self._add_translations()
        for name in fixed:
            self.fields.pop(name, None)
        if self.instance.rehearsal:
            del self.fields["budget_warning"]  # it promises nothing
        else:
            self.fields["budget_warning"].widget.attrs |= {"step": "any", "inputmode": "decimal"}
        if "delta" in self.fields:
            self.fields["delta"].label = "δ"  # not Δ, its capital
            self.fields["delta"].widget.attrs |= {"step": "any", "inputmode": "decimal"}

    def _add_translations(self) -> None:
        """Add a field for each text of the study in each other language of the site or the study."""
        codes = dict.fromkeys([*(code for code, _name in settings.LANGUAGES), *self.instance.languages])
        self.other_languages = [code for code in codes if code != settings.LANGUAGE_CODE and not is_variant(code)]
        for code in self.other_languages:
            texts = self.instance.translations.get(code, {})
            for name in _TRANSLATED_HERE:
                label = f"{self.fields[name].label} ({translated_name(code)})"
                rows = 4 if name == "purpose" else 2
                short = isinstance(self.fields[name].widget, forms.TextInput)
                widget = forms.TextInput if short else forms.Textarea
                attrs = {"lang": code} if short else {"lang": code, "rows": rows}
                self.fields[f"{name}_{code}"] = forms.CharField(
                    label=label, required=False, initial=texts.get(name, ""), widget=widget(attrs=attrs)
                )

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

    def clean_slug(self) -> str:
        slug = self.cleaned_data["slug"]
        study_slug_check(slug)
        return slug


class FactsForm(StudyForm):
    """Form for the facts that the next version of a consent form tells; ``study`` is the study with today's draft."""

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data, instance=study)
        kept = {*FACTS, *(f"{name}_{code}" for name in TRANSLATED_FACTS for code in self.other_languages)}
        for name in [name for name in self.fields if name not in kept]:
            del self.fields[name]

    @property
    def facts(self) -> dict[str, Any]:
        """Facts as they were entered; the form is valid."""
        changed = copy(self.instance)
        for name, value in self.cleaned_data.items():
            setattr(changed, name, value)
        return facts_of(changed)


class MemberForm(forms.Form):
    """Give one of ``roles`` to somebody who has an account."""

    username = forms.CharField(
        label=_("User name"), max_length=150, help_text=_("Of somebody who has an account here.")
    )

    def __init__(self, data: Any = None, *, roles: Iterable[str]) -> None:
        super().__init__(data)
        choices = [(role, Role(role).label) for role in roles]
        self.fields["role"] = forms.ChoiceField(label=_("Role"), choices=choices)

    def clean_username(self) -> AbstractBaseUser:
        user = account_of_staff(self.cleaned_data["username"])
        if user is None:
            raise ValidationError(
                _("Nobody with this user name has an active account. Check the spelling, or ask for an account first.")
            )
        return user


class ConsentFormForm(forms.Form):
    """Form for the texts of a consent form, one field for each language. A draft may be unfinished.

    ``draft`` is the one that would be replaced.
    """

    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(
        self,
        data: Any = None,
        *,
        study: Study,
        draft: ConsentFormDraft | None,
        acting_user: AbstractBaseUser,
        **kwargs: Any,
    ) -> None:
        self.digest = form_digest(draft.texts, draft_facts(draft)) if draft else ""
        self.draft, self.acting_user = draft, acting_user
        super().__init__(data, **kwargs)
        self.fields["seen"].initial = self.digest
        self.languages = list(consent_form_languages(study))
        for code in self.languages:
            self.fields[code] = forms.CharField(
                label=translated_name(code),
                widget=forms.Textarea(attrs={"rows": 16, "lang": code}),
                required=code == settings.LANGUAGE_CODE or code in study.languages,
                error_messages={"required": _("Write this text before you publish the form.")},
            )

    def clean(self) -> dict[str, Any]:
        if "publish" not in self.data:
            for code in self.languages:
                self.errors.pop(code, None)
        others = self.draft is not None and self.draft.saved_by_id != self.acting_user.pk
        if others and self.cleaned_data.get("seen") != self.digest:
            # Whoever has read this and saves again means it.
            self.data = {**self.data.dict(), "seen": self.digest}  # type: ignore[attr-defined]
            message = _(
                "%(who)s has saved another draft since you opened this page; yours is not saved yet. Save again to "
                "replace it, or open the page anew in a second window to compare."
            )
            raise ValidationError(message, params={"who": actor_name(self.draft, "saved_by")})  # type: ignore[arg-type]
        return self.cleaned_data

    @property
    def texts(self) -> dict[str, str]:
        """Non-empty texts by language code."""
        return {code: str(text) for code in self.languages if (text := self[code].value())}


#: Decision that the draft is a small correction.
CORRECTION = "correction"
_CORRECTION_TOLD = format_lazy(
    _(
        "Nothing: it is a small correction, which changes no fact and few words. It comes into force after {days} days "
        "unless somebody of the committee objects"
    ),
    days=OBJECTION_DAYS,
)


class PublicationForm(forms.Form):
    """Form to publish ``draft`` after ``latest``, with the consequence for earlier consents where there may be some."""

    seen = forms.CharField(widget=forms.HiddenInput)
    valid_months = forms.IntegerField(
        label=_("A consent counts for so many months"),
        required=False,
        min_value=1,
        max_value=600,
        help_text=_(
            "Then everybody is asked again, and their records are not used until they answer. People read it before "
            "they decide, and get a mail a month before. Empty, and no day below: it counts until it is withdrawn."
        ),
    )
    valid_until = DayField(
        label=_("Or: up to a day"),
        required=False,
        help_text=_("The last day on which a consent to this version counts, whenever it was given."),
    )
    renewal = forms.ChoiceField(
        label=_("What about those who consented to an earlier version?"),
        choices=[*((choice.value, capfirst(choice.label)) for choice in Renewal), (CORRECTION, _CORRECTION_TOLD)],
        widget=forms.RadioSelect,
        help_text=_(
            "The decision is published with the version and cannot be changed. A second person, of the ethics "
            "committee, publishes the version."
        ),
    )

    answer_by = AnswerField()

    def __init__(self, data: Any, *, draft: ConsentFormDraft, latest: ConsentForm | None) -> None:
        self.digest = form_digest(draft.texts, draft_facts(draft))
        kept = {"valid_months": latest.valid_months, "valid_until": latest.valid_until} if latest else {}
        self.kept = Valid.of(latest) if latest else Valid()
        super().__init__(data, initial={"seen": self.digest, **kept})
        if latest is None:
            del self.fields["renewal"]

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("seen") != self.digest:
            # The page shows the new text, and the hidden field has to go with it.
            self.data = {**self.data.dict(), "seen": self.digest}  # type: ignore[attr-defined]
            raise ValidationError(_("Somebody has changed the draft since you opened this page. Read it again below."))
        if self.cleaned_data.get("valid_months") and self.cleaned_data.get("valid_until"):
            self.add_error("valid_until", _("Say one of the two: for so many months, or up to a day."))
        elif self.decision == CORRECTION and self.valid != self.kept:
            self.add_error("renewal", _("How long a consent counts is no small correction. Propose it as a version."))
        return self.cleaned_data

    @property
    def valid(self) -> Valid:
        """Time for which a consent counts; the form is valid."""
        return Valid(self.cleaned_data.get("valid_months"), self.cleaned_data.get("valid_until"))

    @property
    def decision(self) -> str:
        """Consequence for earlier consents; the form is valid."""
        return self.cleaned_data.get("renewal", Renewal.NOT_ASKED)
