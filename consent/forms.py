"""Forms for a data holder's decision, invitation code and account."""

from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.functional import Promise
from django.utils.text import format_lazy

from consent.documents.codes import code_faults
from consent.models import AUTHORITIES, ConsentForm, EpsilonPolicy, Level
from consent.people.circumstances import Answering
from consent.promises.odds import (
    MOST_RIGHT_GUESSES,
    mu_of,
    name_overstates,
    right_guesses_at,
    right_record_guesses_at,
    times_as_much,
)
from consent.selectors import LastPromise
from consent.services.decisions import Declaration, declaration_statement
from consent.services.invitations import groups_of
from consent.wording.third_person import gettext_lazy as _

#: The answer "I do not take part".
NOT_TAKING_PART = "NONE"
#: The answer that keeps a promise whose level has become weaker.
KEEPING = "KEEP"
PASSWORD_HELP = _("At least eight characters, not only digits, and not a common password.")
PASSWORDS_DIFFER = _("The passwords do not match. Type the same password twice.")
#: Replaces Django's own message, whose German version addresses people as "Du".
INVALID_EMAIL = _("Enter a valid email address, such as name@example.org.")


@dataclass(frozen=True)
class Option:
    """Answer that a holder can choose, with its consequences for the holder.

    For not taking part, ``epsilon`` is None and ``mu`` is 0. ``mu`` is the μ of Gaussian differential privacy that
    corresponds to ε at the study's δ. ``weakens`` is true if an earlier consent promised the person more.
    ``times_high`` is how many times as much may be learned from a person's records as at high protection under the same
    policy; 0 if there is no comparison.
    """

    value: str
    label: str | Promise
    epsilon: float | None = None
    mu: float = 0.0
    weakens: bool = False
    times_high: int = 0

    @property
    def right_guesses(self) -> int:
        """Number of right guesses in 100 about whether the person took part."""
        return right_guesses_at(self.mu)

    @property
    def right_record_guesses(self) -> int:
        """Number of right guesses in 100 about which of two possible records is the person's, if they take part."""
        return right_record_guesses_at(self.mu)

    @property
    def name_overstates(self) -> bool:
        """Whether the level's name promises more than its odds deliver."""
        return self.value in Level.values and name_overstates(self.value, self.right_guesses)

    @property
    def most_right_guesses(self) -> int:
        """Maximum number of right guesses in 100 for which the level's name is appropriate."""
        return MOST_RIGHT_GUESSES[Level(self.value)]


_KEPT = {
    Level.HIGH: _("I keep the high protection that I was promised"),
    Level.AVERAGE: _("I keep the average protection that I was promised"),
    Level.LOW: _("I keep the low protection that I was promised"),
}


def level_option(level: str, epsilon: float, delta: float) -> Option:
    """Return the answer that grants ``level`` with ``epsilon`` at ``delta``."""
    return Option(level, Level(level).label, epsilon, mu_of(epsilon, delta))


def options(policy: EpsilonPolicy, delta: float, last: LastPromise | None = None) -> list[Option]:
    """Return all answers in the order in which they are offered.

    Args:
        last: the person's current promise; if its level has become weaker, keeping the promise is an additional answer.
    """
    high = mu_of(policy.epsilon(Level.HIGH), delta)
    levels = [
        replace(option, times_high=times_as_much(option.mu, high))
        for option in (level_option(level, policy.epsilon(level), delta) for level in Level)
    ]
    answers = [*levels, Option(NOT_TAKING_PART, _("I do not take part"))]
    if last is None:
        return answers
    answers = [replace(option, weakens=(option.epsilon or 0.0) > last.epsilon) for option in answers]
    if last.can_be_kept:
        answers.insert(0, Option(KEEPING, _KEPT[Level(last.level)], last.epsilon, mu_of(last.epsilon, delta)))
    return answers


class DecisionForm(forms.Form):
    """Form for a holder's answer to ``consent_form`` under ``policy``; ``changed`` if they answered earlier versions.

    ``delta`` is their study's δ; ``last`` is the promise of their last consent, if they gave one. ``promise`` describes
    that promise as shown on the answered page, and ``weaker`` is their separate agreement to a weaker promise.
    """

    form_version = forms.IntegerField(widget=forms.HiddenInput)
    policy_version = forms.IntegerField(widget=forms.HiddenInput)
    promise = forms.CharField(widget=forms.HiddenInput, required=False, max_length=40)
    weaker = forms.BooleanField(required=False)
    talked = forms.BooleanField(label=_("I talked to someone about this before I decided."), required=False)
    text = forms.CharField(widget=forms.HiddenInput, required=False)
    choice = forms.ChoiceField(
        label=_("Your decision"),
        widget=forms.RadioSelect,
        error_messages={
            "required": _("Choose one of the four answers."),
            "invalid_choice": _("Choose one of the four answers."),
        },
    )

    def __init__(
        self,
        data: Any = None,
        *,
        consent_form: ConsentForm,
        policy: EpsilonPolicy,
        delta: float,
        last: LastPromise | None = None,
    ) -> None:
        super().__init__(data)
        self.consent_form = consent_form
        self.policy = policy
        self.last = last
        self.shown = "" if last is None else repr(last.epsilon)
        self.options = options(policy, delta, last)
        self.fields["choice"].choices = [(option.value, option.label) for option in self.options]  # type: ignore[attr-defined]

    def clean_text(self) -> str:
        """Return the code of the text that the person read, or "" if the form has no such text."""
        code: str = self.cleaned_data["text"]
        return code if code in self.consent_form.texts else ""

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        # People who withdraw are not asked to give up the promise that the page showed them.
        is_shown = data.get("choice") == NOT_TAKING_PART or data.get("promise") == self.shown
        if not (self.is_of_today and is_shown):
            raise ValidationError(
                _("The study's information has changed since you opened this page. Please read it again, then decide."),
                code="changed",
            )
        return data

    @property
    def changed(self) -> bool:
        return self.has_error(NON_FIELD_ERRORS, "changed")

    @property
    def is_of_today(self) -> bool:
        """Return whether the answered page showed the form and the policy that are in force."""
        seen = self.cleaned_data.get("form_version"), self.cleaned_data.get("policy_version")
        return seen == (self.consent_form.version, self.policy.version)

    @property
    def high(self) -> Option:
        """The answer that grants high protection."""
        return next(option for option in self.options if option.value == Level.HIGH)

    @property
    def chosen(self) -> Option:
        """The chosen answer of the valid form."""
        return next(option for option in self.options if option.value == self["choice"].value())


class DeclarationForm(forms.Form):
    """Form in which a person who answers for someone else declares the authority to do so."""

    authority = forms.ChoiceField(
        label=_("What gives you the right to decide?"),
        widget=forms.RadioSelect,
        error_messages={"required": _("Choose what gives you the right to decide.")},
    )
    declared = forms.BooleanField(error_messages={"required": _("To decide for this person, confirm the statement.")})

    def __init__(self, data: Any = None, *, answers: Answering) -> None:
        super().__init__(data)
        self.statement = declaration_statement()
        self.fields["declared"].label = self.statement
        self.fields["authority"].choices = [(each.value, each.label) for each in AUTHORITIES[answers.role]]  # type: ignore[attr-defined]

    def declaration(self) -> Declaration:
        """The declaration of the valid form."""
        return Declaration(self.cleaned_data["authority"], self.statement)


class InvitationCodeForm(forms.Form):
    """Form for the code of an invitation, typed from paper. If it is mistyped, the error names the wrong groups."""

    code = forms.CharField(
        label=_("Your invitation code"),
        max_length=100,
        help_text=_(
            "Four groups of five letters and digits; older invitations have seven groups. Use capital or small "
            "letters, with or without spaces. We read O as zero, and I and L as one."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        if faults := code_faults(code, groups_of(code)):
            raise ValidationError(faults)
        return code


class AccountForm(forms.Form):
    """Form for creating an account that replaces the link of an invitation."""

    email = forms.EmailField(
        label=_("Email address"),
        max_length=150,
        help_text=_("This will be your user name. We'll email this address to check that it is yours."),
        widget=forms.EmailInput(attrs={"autocomplete": "username"}),
        error_messages={"invalid": INVALID_EMAIL},
    )
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        help_text=_(
            "At least eight characters, not only digits, and not a common password. If you already have an account "
            "here, use its password."
        ),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    password_again = forms.CharField(
        label=_("Repeat the password"), strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )

    def clean(self) -> dict[str, Any]:
        password, again = self.cleaned_data.get("password"), self.cleaned_data.pop("password_again", None)
        if password and again and password != again:
            self.add_error("password_again", PASSWORDS_DIFFER)
        return self.cleaned_data


class HolderAddressForm(forms.Form):
    """Form for the email address of a holder without an account."""

    email = forms.EmailField(
        label=_("Email address"),
        max_length=150,
        help_text=_("We'll email a link to this address. We won't send anything else until you have opened it."),
        error_messages={"invalid": INVALID_EMAIL},
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )


class LaterForm(HolderAddressForm):
    """Form for a reminder to decide: the number of days, and an email address if the site has none for the person."""

    DAYS = (3, 7, 14)

    days = forms.TypedChoiceField(
        label=_("When to remind you"),
        coerce=int,
        choices=[(days, format_lazy(_("in {} days"), days)) for days in DAYS],
        widget=forms.RadioSelect,
        initial=7,
    )
    field_order = ["days", "email"]

    def __init__(self, data: Any = None, *, reached: bool) -> None:
        super().__init__(data)
        if reached:
            del self.fields["email"]
