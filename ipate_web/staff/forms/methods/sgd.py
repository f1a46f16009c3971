"""Fields of runs of private gradient steps."""

from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from consent.models import Study
from ipate_web.staff.forms.methods.base import number
from ipate_web.staff.forms.methods.holders import HoldersFields, rounds_choices
from learning.mechanisms.choices import AskingField
from learning.mechanisms.sampled_steps.choices import (
    BASELINES,
    NETWORK_CHOICES,
    VARIANTS,
    Samples,
    samples_fields,
    samples_from_json,
)
from learning.mechanisms.steps.choices import MOST_ROUNDS, PUBLISH_CHOICES, Steps, steps_fields, steps_from_json
from training.methods import method_by, method_of
from training.models import Run

_INDIVIDUAL = Run.Variant.INDIVIDUAL.value
#: Choices that runs in which everyone is charged for their own gradients have alone, runs over samples, and all.
_OF_ALL, _OF_SAMPLES = ("rounds", "sigma"), ("network", "expected")
_SHARED = ("steps", "clip_norm", "step_size", "momentum", "publish")


class SgdFields(HoldersFields):
    """See :class:`MethodFields`."""

    name = Run.Method.SGD.value
    help = gettext_lazy(
        "A model learns step by step from the sum of holders' gradients, to which noise is added. No point is put to a "
        "vote; the student learns what the model says of the public points, or the model itself is published."
    )
    prefix = "steps"
    space_help = gettext_lazy(
        "What the model sees of a record; fitted on the public points alone. Without these, and of the convolutional "
        "network, there is none: leave it at the usual one."
    )
    places = {"batch_size": "steps-batch_size", "asking": None, "variant": "steps-variant"}

    def _fields(self) -> dict[str, forms.Field]:
        variants = (_INDIVIDUAL, *VARIANTS, *(BASELINES if self.form.study.rehearsal else ()))
        by_rule = _("Empty: chosen by rule.")
        specs = {spec.name: spec for spec in (*samples_fields(), *steps_fields())}
        return {
            "variant": forms.ChoiceField(
                label=_("Variant"), choices=[(name, capfirst(str(Run.Variant(name).label))) for name in variants]
            ),
            "network": forms.ChoiceField(
                label=_("Model"), choices=[(name, capfirst(_(label))) for name, label in NETWORK_CHOICES.items()]
            ),
            "expected": _number(specs["expected"], _("Holders drawn in a step, on average"), by_rule),
            "rounds": forms.TypedChoiceField(
                label=_("Rounds"),
                coerce=int,
                choices=rounds_choices(MOST_ROUNDS),
                help_text=_("In the second the model learns in the inner layer of the student of the first."),
            ),
            "sigma": _number(specs["sigma"], _("Noise multiplier σ"), by_rule),
            "steps": _number(specs["steps"], _("Gradient steps"), by_rule),
            "clip_norm": _number(specs["clip_norm"], _("Clipping norm"), by_rule),
            "step_size": _number(specs["step_size"], _("Step size"), by_rule),
            "momentum": _number(
                specs["momentum"],
                _("Momentum"),
                _("Share of the last movement that is kept in the next. Empty: chosen by rule."),
            ),
            "publish": forms.ChoiceField(
                label=_("Published"),
                required=False,
                choices=[(name, _(label)) for name, label in PUBLISH_CHOICES.items()],
            ),
            "batch_size": number(
                whole=True,
                label=_("Steps in a chunk"),
                required=False,
                min_value=1,
                help_text=_(
                    "They are released together; withdrawals count from the next chunk on. Empty: %(few)d, or over "
                    "samples %(many)d."
                )
                % {"few": _batch_size(_INDIVIDUAL), "many": _batch_size(VARIANTS[0])},
            ),
        }

    @property
    def variant(self) -> BoundField:
        return self._bound("variant")

    @property
    def individual(self) -> str:
        """The variant in which everyone is charged for their own gradients."""
        return _INDIVIDUAL

    @property
    def sampled(self) -> str:
        """The other variants, as the template needs them."""
        return " ".join((*VARIANTS, *BASELINES))

    @property
    def of_samples(self) -> list[BoundField]:
        return [self._bound(name) for name in _OF_SAMPLES]

    @property
    def of_all(self) -> list[BoundField]:
        return [self._bound(name) for name in _OF_ALL]

    @property
    def details(self) -> list[BoundField]:
        return [self._bound(name) for name in (*_SHARED, "batch_size")]

    @property
    def _is_individual(self) -> bool:
        return self._value("variant") == _INDIVIDUAL

    def uncounted(self) -> list[str]:
        return [self.field(name) for name in (_OF_SAMPLES if self._is_individual else _OF_ALL)]

    def check(self) -> None:
        super().check()
        if not self._is_individual and self._value("network") == "cnn" and self._value("representation"):
            message = _("The convolutional network takes images as they are: leave it at the usual one.")
            self.form.add_error(self.field("representation"), message)

    def run_fields(self) -> dict[str, Any]:
        own, kind = (_OF_ALL, Steps) if self._is_individual else (_OF_SAMPLES, Samples)
        variant = self._value("variant")
        chosen = {name: self._value(name) for name in (*own, *_SHARED)}
        asked = self.asked(kind(**self.chosen_space(), **chosen).to_json())
        return asked | {"variant": variant, "batch_size": self._value("batch_size") or _batch_size(variant)}

    @classmethod
    def _values(cls, variant: str, chosen: Steps | Samples) -> dict[str, Any]:
        """Values of the form's fields. Nobody's statement is taken over: it is made anew."""
        own = _OF_ALL if isinstance(chosen, Steps) else _OF_SAMPLES
        names = ("representation", *own, *_SHARED)
        return {cls.field("variant"): variant} | {cls.field(name): getattr(chosen, name) for name in names}

    @staticmethod
    def initial(study: Study) -> dict[str, Any]:
        usual = Samples()
        beside = {SgdFields.field(name): getattr(usual, name) for name in _OF_SAMPLES}
        return beside | SgdFields._values(_INDIVIDUAL, Steps())

    @staticmethod
    def initial_like(run: Run) -> dict[str, Any]:
        is_individual = run.variant == _INDIVIDUAL
        chosen = steps_from_json(run.asking) if is_individual else samples_from_json(run.asking)
        values = SgdFields._values(run.variant, chosen)
        batch_size = None if run.batch_size == method_of(run).batch_size else run.batch_size
        return values | {SgdFields.field("batch_size"): batch_size}


def _batch_size(variant: str) -> int:
    """Steps in a chunk where a proposal does not say."""
    return method_by(SgdFields.name, variant).batch_size


def _number(spec: AskingField, label: str, help: str) -> forms.Field:
    return number(
        whole=spec.type is int,
        label=label,
        required=not spec.optional,
        min_value=spec.minimum,
        max_value=spec.maximum,
        help_text=help,
    )
