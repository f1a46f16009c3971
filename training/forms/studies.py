"""Forms about a study itself: its basics, its people, what its holders read."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.translation import get_language_info
from django.utils.translation import gettext_lazy as _

from consent.models import Role, Study

#: Short names that would hide a page of the site.
RESERVED = {"new"}


class StudyForm(forms.ModelForm):
    """The basics; the fields named in ``fixed`` are left out."""

    class Meta:
        model = Study
        fields = ["title", "slug", "purpose", "controller", "contact", "delta", "retain_votes"]
        widgets = {"purpose": forms.Textarea(attrs={"rows": 4})}

    def __init__(self, *args: Any, fixed: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in fixed:
            del self.fields[name]
        if "delta" in self.fields:
            self.fields["delta"].widget.attrs |= {"step": "any", "inputmode": "decimal"}

    def clean_slug(self) -> str:
        slug = self.cleaned_data["slug"]
        if slug in RESERVED:
            raise ValidationError(_("This name is taken by the site itself. Choose another."))
        return slug


class MemberForm(forms.Form):
    """Give a role to somebody who has an account."""

    username = forms.CharField(
        label=_("User name"), max_length=150, help_text=_("Of somebody who has an account here.")
    )
    role = forms.ChoiceField(label=_("Role"), choices=Role)

    def clean_username(self) -> AbstractBaseUser:
        users = get_user_model().objects.filter(username=self.cleaned_data["username"], is_active=True)
        user = users.first()
        if user is None:
            raise ValidationError(
                _("Nobody with this user name has an active account. Check the spelling, or ask for an account first.")
            )
        return user


class ConsentFormForm(forms.Form):
    """The text of a consent form, one field for each language of the site."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for code, _name in settings.LANGUAGES:
            self.fields[code] = forms.CharField(
                label=get_language_info(code)["name_translated"],
                widget=forms.Textarea(attrs={"rows": 16, "lang": code}),
                required=code == settings.LANGUAGE_CODE,
            )

    @property
    def texts(self) -> dict[str, str]:
        """Text by language code; the form is valid."""
        return {code: text for code, text in self.cleaned_data.items() if text}
