"""Fields of runs of private gradient steps."""

from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from consent.models import Study
from ipate_web.staff.forms.methods.base import number
from ipate_web.staff.forms.methods.holders import HoldersFields, rounds_choices
from training.methods.sgd.parameters import MOST_ROUNDS, PUBLISH_CHOICES, Steps, steps_fields, steps_from_json
from training.models import Run
from training.services.methods import METHODS

_CHOICES = ("rounds", "steps", "clip_norm", "sigma", "step_size", "momentum", "publish")


class SgdFields(HoldersFields):
    """See :class:`MethodFields`."""

    name = Run.Method.SGD.value
    help = gettext_lazy(
        "A linear model learns step by step from the sum of everybody's gradients, to which noise is added; each "
        "holder is charged for the length of their own. No point is put to a vote; the student learns what the model "
        "says of the public points, or the model itself is published."
    )
    prefix = "steps"
    space_help = gettext_lazy("What the model sees of a record; fitted on the public points alone.")
    places = {"batch_size": "steps-batch_size", "asking": None}

    def _fields(self) -> dict[str, forms.Field]:
        by_rule = _("Empty: chosen by rule.")
        labels = {
            "steps": _("Gradient steps"),
            "clip_norm": _("Clipping norm"),
            "sigma": _("Noise multiplier σ"),
            "step_size": _("Step size"),
            "momentum": _("Momentum"),
        }
        helps = {"momentum": _("Share of the last movement that is kept in the next.")}
        specs = {spec.name: spec for spec in steps_fields()}
        return {
            "rounds": forms.TypedChoiceField(
                label=_("Rounds"),
                coerce=int,
                choices=rounds_choices(MOST_ROUNDS),
                help_text=_("In the second the model learns in the inner layer of the student of the first."),
            ),
            **{
                name: number(
                    whole=specs[name].type is int,
                    label=label,
                    required=not specs[name].optional,
                    min_value=specs[name].minimum,
                    max_value=specs[name].maximum,
                    help_text=helps.get(name, by_rule),
                )
                for name, label in labels.items()
            },
            "publish": forms.ChoiceField(
                label=_("Published"),
                required=False,
                choices=[(name, _(label)) for name, label in PUBLISH_CHOICES.items()],
            ),
            "batch_size": number(
                whole=True,
                label=_("Steps in a chunk"),
                min_value=1,
                help_text=_("They are released together; withdrawals and new consents count from the next chunk on."),
            ),
        }

    @property
    def details(self) -> list[BoundField]:
        return [self._bound(name) for name in (*_CHOICES, "batch_size")]

    def uncounted(self) -> list[str]:
        return []

    def run_fields(self) -> dict[str, Any]:
        chosen = {name: self._value(name) for name in _CHOICES}
        return self.asked(Steps(**self.chosen_space(), **chosen).to_json())

    @classmethod
    def _values(cls, steps: Steps, batch_size: int) -> dict[str, Any]:
        """Values of the form's fields. Nobody's statement is taken over: it is made anew."""
        names = ("representation", *_CHOICES)
        return {cls.field(name): getattr(steps, name) for name in names} | {cls.field("batch_size"): batch_size}

    @staticmethod
    def initial(study: Study) -> dict[str, Any]:
        return SgdFields._values(Steps(), METHODS[SgdFields.name].batch_size)

    @staticmethod
    def initial_like(run: Run) -> dict[str, Any]:
        return SgdFields._values(steps_from_json(run.asking), run.batch_size)
