"""Forms for a data holder's decision, invitation code and account."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from consent.models import ConsentForm, EpsilonPolicy, Level
from consent.odds import MOST_RIGHT_GUESSES, mu_of, name_says_too_much, right_guesses_at, right_record_guesses_at

#: The answer "I do not take part".
NOT_TAKING_PART = "NONE"
PASSWORD_HELP = _("At least eight characters, not only digits, and none that many people use.")
PASSWORDS_DIFFER = _("The two passwords differ. Type the same one twice.")
#: In place of Django's own words, whose German says "Du".
INVALID_EMAIL = _("Enter a valid e-mail address, such as name@example.org.")


@dataclass(frozen=True)
class Option:
    """Answer that a holder can choose, with what it means for the person who gives it.

    ``epsilon`` is None and ``mu`` 0 without taking part. ``mu`` is what ε stands for at the study's δ in Gaussian
    differential privacy.
    """

    value: str
    label: str | Promise
    epsilon: float | None = None
    mu: float = 0.0

    @property
    def right_guesses(self) -> int:
        """Of 100 guesses whether the person took part."""
        return right_guesses_at(self.mu)

    @property
    def right_record_guesses(self) -> int:
        """Of 100 guesses which of two possible records is the person's, by somebody who knows that they take part."""
        return right_record_guesses_at(self.mu)

    @property
    def name_says_too_much(self) -> bool:
        """Whether the level's name promises more than the odds hold."""
        return self.epsilon is not None and name_says_too_much(self.value, self.right_guesses)

    @property
    def most_right_guesses(self) -> int:
        """Largest number of right guesses in 100 at which the level may bear its name."""
        return MOST_RIGHT_GUESSES[Level(self.value)]


def level_option(level: str, epsilon: float, delta: float) -> Option:
    """The answer that grants ``level``, which stands for ``epsilon`` at ``delta``."""
    return Option(level, Level(level).label, epsilon, mu_of(epsilon, delta))


def options(policy: EpsilonPolicy, delta: float) -> list[Option]:
    """All answers, in the order in which they are offered; ``delta`` is the study's δ."""
    levels = [level_option(level, policy.epsilon(level), delta) for level in Level]
    return [*levels, Option(NOT_TAKING_PART, _("I do not take part"))]


class DecisionForm(forms.Form):
    """Form for a holder's answer to ``consent_form`` under ``policy``; ``changed`` if they answered to earlier ones.

    ``delta`` is the δ of their study.
    """

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

    def __init__(self, data: Any = None, *, consent_form: ConsentForm, policy: EpsilonPolicy, delta: float) -> None:
        super().__init__(data)
        self.consent_form = consent_form
        self.policy = policy
        self.options = options(policy, delta)
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
        """Chosen answer of the valid form."""
        return next(option for option in self.options if option.value == self.cleaned_data["choice"])


class CodeForm(forms.Form):
    """Form for the code of an invitation, typed from paper."""

    code = forms.CharField(
        label=_("Code of your invitation"),
        max_length=100,
        help_text=_("Capital or small letters, with or without spaces."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )


class AccountForm(forms.Form):
    """Form for an account in place of an invitation's link."""

    email = forms.EmailField(
        label=_("E-mail address"),
        max_length=150,
        help_text=_("It will be your user name. We send a mail there to see that it is yours."),
        widget=forms.EmailInput(attrs={"autocomplete": "username"}),
        error_messages={"invalid": INVALID_EMAIL},
    )
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        help_text=_(
            "At least eight characters, not only digits, and none that many people use. If you already have an "
            "account here: its password."
        ),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    password_again = forms.CharField(
        label=_("The password again"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any]:
        password, again = self.cleaned_data.get("password"), self.cleaned_data.pop("password_again", None)
        if password and again and password != again:
            self.add_error("password_again", PASSWORDS_DIFFER)
        return self.cleaned_data
