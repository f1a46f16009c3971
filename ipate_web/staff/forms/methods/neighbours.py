"""Fields of runs in which every holder votes."""

from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from consent.models import Study
from ipate_web.staff.forms.methods.base import number
from ipate_web.staff.forms.methods.holders import HoldersFields, rounds_choices
from learning.mechanisms.neighbours.choices import (
    KERNEL_CHOICES,
    LARGEST_SIGMA,
    MOST_ROUNDS,
    Asking,
    asking_from_json,
)
from learning.mechanisms.neighbours.planner import MOST_FIRST
from training.models import Run

#: Queries that are asked together, unless chosen: few commits, and counts are seen soon.
BATCH = 500


_OF_SEVERAL_ROUNDS = ("first_queries", "embedded")


class NeighboursFields(HoldersFields):
    """See :class:`MethodFields`."""

    name = Run.Method.NEIGHBOURS.value
    help = gettext_lazy(
        "Whoever owns a record near a public point votes for its class, each as often as their own promise allows; "
        "noisy counts are released. No teachers are trained, and small groups need no special treatment."
    )
    prefix = "asking"
    space_help = gettext_lazy("The space in which neighbours are near; fitted on the public points alone.")
    places = {"batch_size": "asking-batch_size", "asking": None}

    def _fields(self) -> dict[str, forms.Field]:
        by_forecast = _("Empty: chosen by the forecast.")
        return {
            "rounds": forms.TypedChoiceField(
                label=_("Rounds"),
                coerce=int,
                empty_value=None,
                required=False,
                choices=[*rounds_choices(MOST_ROUNDS), ("", _("chosen by the forecast"))],
                help_text=_("From the second on votes correct what the student learned so far predicts."),
            ),
            "first_queries": number(
                whole=True,
                label=_("Points of the first round"),
                required=False,
                min_value=1,
                help_text=_("Empty: a fifteenth of all that are asked, at most %(most)d.") % {"most": MOST_FIRST},
            ),
            "embedded": forms.BooleanField(
                label=_("The second round compares points by the student's inner layer"),
                required=False,
                help_text=_("If the student of the first round has one, as networks do."),
            ),
            "sigma": number(
                label=_("σ, noise of each count"),
                required=False,
                min_value=1e-3,
                max_value=LARGEST_SIGMA,
                help_text=by_forecast,
            ),
            "radius": number(
                label=_("Radius, in per cent of the public points"),
                required=False,
                min_value=1e-7,
                max_value=100,
                help_text=by_forecast,
            ),
            "kernel": forms.ChoiceField(
                label=_("A record counts"), choices=[(name, _(label)) for name, label in KERNEL_CHOICES.items()]
            ),
            "records": number(
                label=_("Records per holder"),
                min_value=1,
                max_value=1e4,
                help_text=_("A public figure, on which the forecast rests; not counted from the data."),
            ),
            "batch_size": number(whole=True, label=_("Queries in a batch"), min_value=1),
        }

    @property
    def rounds(self) -> BoundField:
        return self._bound("rounds")

    @property
    def several_rounds(self) -> str:
        """The choices of rounds beside which there is something to choose about each; empty: by the forecast."""
        return " ".join(["", *(str(rounds) for rounds in range(2, MOST_ROUNDS + 1))])

    @property
    def of_several_rounds(self) -> list[BoundField]:
        return [self._bound(name) for name in _OF_SEVERAL_ROUNDS]

    @property
    def details(self) -> list[BoundField]:
        return [self._bound(name) for name in ("sigma", "radius", "kernel", "records", "batch_size")]

    def uncounted(self) -> list[str]:
        return [self.field(name) for name in _OF_SEVERAL_ROUNDS] if self._value("rounds") == 1 else []

    def check(self) -> None:
        super().check()
        first, public = self._value("first_queries"), self.form.cleaned_data.get("public_dataset")
        if self._value("rounds") != 1 and public is not None and first and first >= public.rows:
            self.form.add_error(
                self.field("first_queries"),
                _("The first round has to leave public points for the next: ask for fewer."),
            )

    def run_fields(self) -> dict[str, Any]:
        rounds, radius = self._value("rounds"), self._value("radius")
        asking = Asking(
            **self.chosen_space(),
            rounds=rounds,
            **({name: self._value(name) for name in _OF_SEVERAL_ROUNDS} if rounds != 1 else {}),
            sigma=self._value("sigma"),
            radius_share=None if radius is None else radius / 100,
            kernel=self._value("kernel"),
            records=self._value("records"),
        )
        return self.asked(asking.to_json())

    @staticmethod
    def initial(study: Study) -> dict[str, Any]:
        return {**_asked(Asking()), NeighboursFields.field("batch_size"): BATCH}

    @staticmethod
    def initial_like(run: Run) -> dict[str, Any]:
        return {**_asked(asking_from_json(run.asking)), NeighboursFields.field("batch_size"): run.batch_size}


def _asked(asking: Asking) -> dict[str, Any]:
    """Values of the form's fields. Nobody's statement is taken over: it is made anew."""
    names = ("representation", "rounds", *_OF_SEVERAL_ROUNDS, "sigma", "kernel", "records")
    radius = None if asking.radius_share is None else round(100 * asking.radius_share, 9)
    return {NeighboursFields.field(name): getattr(asking, name) for name in names} | {
        NeighboursFields.field("radius"): radius
    }
