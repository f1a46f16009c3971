"""What a data holder can answer, and on which words and odds the answer rests."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from consent.models import ConsentForm, EpsilonPolicy, Level
from consent.odds import right_guesses_in_100

#: The answer "I do not take part".
NOT_TAKING_PART = "NONE"
#: In place of Django's own words, whose German says "Du".
INVALID_EMAIL = _("Enter a valid e-mail address, such as name@example.org.")
#: How often a guess is right that rests on nothing.
CHANCE = 50


@dataclass(frozen=True)
class Option:
    """One of the answers, with what it means for the person who gives it. ``epsilon`` is None without taking part."""

    value: str
    label: str | Promise
    epsilon: float | None = None

    @property
    def right_guesses(self) -> int:
        return CHANCE if self.epsilon is None else right_guesses_in_100(self.epsilon)


def options(policy: EpsilonPolicy) -> list[Option]:
    """All answers, in the order in which they are offered."""
    levels = [Option(level.value, level.label, policy.epsilon(level)) for level in Level]
    return [*levels, Option(NOT_TAKING_PART, _("I do not take part"))]


class DecisionForm(forms.Form):
    """A holder's answer to ``consent_form`` under ``policy``; ``changed`` when they answered to earlier ones."""

    form_version = forms.IntegerField(widget=forms.HiddenInput)
    policy_version = forms.IntegerField(widget=forms.HiddenInput)
    choice = forms.ChoiceField(
        label=_("Your decision"),
        widget=forms.RadioSelect,
        error_messages={
            "required": _("Choose one of the four answers."),
            "invalid_choice": _("Choose one of the four."),
        },
    )

    def __init__(self, data: Any = None, *, consent_form: ConsentForm, policy: EpsilonPolicy) -> None:
        super().__init__(data)
        self.consent_form = consent_form
        self.policy = policy
        self.options = options(policy)
        self.fields["choice"].choices = [(option.value, option.label) for option in self.options]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        seen = self.cleaned_data.get("form_version"), self.cleaned_data.get("policy_version")
        if seen != (self.consent_form.version, self.policy.version):
            raise ValidationError(
                _("What you are asked has changed since you opened this page. Please read it again and then decide."),
                code="changed",
            )
        return self.cleaned_data

    @property
    def changed(self) -> bool:
        return self.has_error(NON_FIELD_ERRORS, "changed")

    @property
    def chosen(self) -> Option:
        """The answer; the form is valid."""
        return next(option for option in self.options if option.value == self.cleaned_data["choice"])


class CodeForm(forms.Form):
    """The code of an invitation, as it stands on paper."""

    code = forms.CharField(
        label=_("Code of your invitation"),
        max_length=100,
        help_text=_("Capital or small letters, with or without spaces."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )


class AccountForm(forms.Form):
    """An account that takes the place of an invitation's link."""

    email = forms.EmailField(
        label=_("E-mail address"),
        max_length=150,
        help_text=_("It will be your user name. Only the people who run this site can see it."),
        widget=forms.EmailInput(attrs={"autocomplete": "username"}),
        error_messages={"invalid": INVALID_EMAIL},
    )
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        help_text=_("At least eight characters, not only digits. If you already have an account here: its password."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
