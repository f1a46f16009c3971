"""Forms of alliances of sites: found or join one, propose a run over sites, take one up."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from consent.models import Study
from training.alliances.services import private_datasets
from training.models import Alliance, Dataset, JointRun, Run


class FoundForm(forms.Form):
    """Form with which a hub founds an alliance."""

    prefix = "found"

    name = forms.CharField(label=_("Name"), max_length=100)
    sites = forms.CharField(
        label=_("Sites"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_("One a line, as people are to read it. Each gets an invitation."),
    )
    colluding = forms.IntegerField(
        label=_("Sites that may collude"),
        min_value=0,
        initial=1,
        help_text=Alliance._meta.get_field("colluding").help_text,
    )
    public = forms.ModelChoiceField(
        label=_("Public points"), queryset=Dataset.objects.none(), help_text=_("Their schema is that of all sites.")
    )

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        self.fields["public"].queryset = datasets(study, Dataset.Kind.PUBLIC)  # type: ignore[attr-defined]

    def clean_sites(self) -> list[str]:
        names = [line.strip() for line in self.cleaned_data["sites"].splitlines()]
        return [name for name in names if name]


class RenewalForm(forms.Form):
    """Form with which an operator of a hub asks for another key of a site."""

    site = forms.ChoiceField(label=_("Site"))

    def __init__(self, data: Any = None, *, alliance: Alliance) -> None:
        super().__init__(data)
        names = alliance.sites.filter(left_at=None).values_list("name", flat=True)
        self.fields["site"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


class InvitationForm(forms.Form):
    """Form with which a site registers another key."""

    invitation = forms.CharField(
        label=_("Invitation"),
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=_("One line that the hub has given you, by another way than the network if you can."),
    )


class ConnectForm(InvitationForm):
    """Form with which a site accepts the invitation of a hub."""

    prefix = "connect"

    certificate = forms.CharField(
        label=_("Certificate of the hub"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=Alliance._meta.get_field("certificate").help_text,
    )


#: Methods that a hub proposes on its page; votes of teachers need choices that the API alone takes.
_METHODS = (Run.Method.SGD, Run.Method.NEIGHBOURS, Run.Method.COUNTS, Run.Method.SYNTHESIS)


class _ChoicesField(forms.JSONField):
    """Choices as JSON; left out, they are shown as an empty field."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class JointRunForm(forms.Form):
    """Form with which a hub proposes a run over sites."""

    title = forms.CharField(label=_("Title"), max_length=200)
    purpose = forms.CharField(label=_("What it is for"), required=False, widget=forms.Textarea(attrs={"rows": 2}))
    method = forms.ChoiceField(
        label=_("Method"),
        choices=[(name, Run.Method(name).label) for name in _METHODS],
    )
    choices = _ChoicesField(
        label=_("Choices of the method"),
        required=False,
        initial=dict,
        help_text=_('As JSON, such as {"steps": 15}; the documentation of the API lists them. Empty: the usual.'),
    )
    mode = forms.ChoiceField(label=_("Mode"), choices=JointRun.Mode.choices, widget=forms.RadioSelect)
    sites = forms.MultipleChoiceField(label=_("Sites"), widget=forms.CheckboxSelectMultiple)
    public_dataset = forms.ModelChoiceField(
        label=_("Public points"),
        queryset=Dataset.objects.none(),
        required=False,
        help_text=_("Whoever counts people needs none."),
    )
    test_dataset = forms.ModelChoiceField(label=_("Evaluation data"), queryset=Dataset.objects.none(), required=False)

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
            raise ValidationError(_("Give names and values in braces."))
        return chosen


class TakeForm(forms.Form):
    """Form with which a site takes up a run that the hub has proposed."""

    private_dataset = forms.ModelChoiceField(label=_("Private dataset"), queryset=Dataset.objects.none())

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        found = private_datasets(study)
        self.fields["private_dataset"].queryset = found  # type: ignore[attr-defined]
        self.fields["private_dataset"].initial = found.first()


def datasets(study: Study, kind: str) -> Any:
    """Datasets of a kind that are there."""
    return Dataset.objects.filter(study=study, kind=kind, removed_at=None)
