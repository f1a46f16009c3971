"""Form fields of the methods of runs, generated from the descriptions of their choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, get_args

from django import forms
from django.forms.boundfield import BoundField
from django.utils.formats import localize
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounting.group_budgets import head_counts
from accounting.privacy import Conversion, Method
from consent.models import Study
from ipate_web.run_words import choice_label
from ipate_web.staff.fields import (
    KINDS,
    ParameterGroup,
    chosen_parameters,
    kind_add,
    number,
    parameter_groups,
    parameter_values,
    unused_parameters,
)
from learning.formats import schema_from_json
from learning.learners import learner_parameters, suggested_learner
from learning.mechanisms.choices import Choice
from learning.mechanisms.counts.table_plan import column_names
from learning.mechanisms.pate import AGGREGATORS
from learning.representations import REPRESENTATIONS
from training.engine.budgets import DEFAULTS
from training.methods import IMPLEMENTED, RunMethod, method_by, method_of
from training.methods.pate import ACCOUNTING
from training.methods.sampled_steps import SgdSampled
from training.models import Dataset, Encoder, Run

_STATEMENTS = {name: kind.statement for name, kind in REPRESENTATIONS.items() if kind.statement}
"""Statements that the operator must confirm before a representation may be used."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A field with the content shown below it.

    Both apply only while the field ``control`` has one of the ``values``.
    """

    field: BoundField
    control: BoundField | None
    values: str
    groups: list[ParameterGroup]


class StudyForm(forms.Form):
    """A form about ``study``. Methods add their own fields."""

    study: Study


class MethodFields:
    """The fields of one method in a form, which apply only while the method is chosen.

    Attributes:
        name: A :class:`training.models.Run.Method`.
        help: Explanation of the method for people choosing one.
        title: Heading above its fields.
        prefix: Prefix of the field names in the form; may be empty.
        batch_size: Initial value in the form; None leaves it empty for the method's own default.
        detailed: Fields that are folded away, under ``details_title``.
        note: Note about some variants, with the variants to which it applies.
    """

    name: ClassVar[str]
    help: ClassVar[str | Promise]
    title: ClassVar[str | Promise]
    prefix: ClassVar[str] = ""
    batch_size: ClassVar[int | None] = None
    detailed: ClassVar[tuple[str, ...]] = ()
    details_title: ClassVar[str | Promise] = ""
    note: ClassVar[tuple[str | Promise, tuple[str, ...]]] = ("", ())

    def __init__(self, form: StudyForm) -> None:
        self.form = form
        self._placed: list[tuple[str, str, str]] = []
        others = set(form.fields)
        if len(self._variants()) > 1:
            labels = [(name, capfirst(str(Run.Variant(name).label))) for name in self._variants()]
            self._add("variant", forms.ChoiceField(label=_("Variant"), choices=labels))
        for name, choice in self.choices().items():
            if not self._offered(name):
                continue
            control, values = self._condition(choice)
            if name == "stated":
                self._add_statements()
            elif choice.kinds is not None:
                unset = choice.unset if choice.optional and not self.form.study.rehearsal else ""
                kind_add(form, self.field(name), choice_label(choice), unset)
                self._place(name, control, values)
            else:
                self._add(name, self._form_field(choice), control, values)
        if batch_label := self.implemented()[0].batch_label:
            batch = {"label": _(batch_label), "help_text": self._batch_help()}
            self._add("batch_size", number(whole=True, required=False, min_value=1, **batch))
        self._add_others()
        self.names = [name for name in form.fields if name not in others]

    def _form_field(self, choice: Choice) -> forms.Field:
        study = self.form.study
        if choice.is_encoder:
            return _encoder_field(choice, study)
        return _column_field(choice, study) if choice.is_column else _form_field(choice, rehearsal=study.rehearsal)

    @classmethod
    def field(cls, name: str) -> str:
        """Return the name of a field in the form."""
        return f"{cls.prefix}-{name}" if cls.prefix else name

    @classmethod
    def implemented(cls) -> list[RunMethod]:
        """Return the classes that implement the method, one for each set of variants with the same choices."""
        return [method for method in IMPLEMENTED if method.name == cls.name]

    @classmethod
    def choices(cls) -> dict[str, Choice]:
        """Return the choices that have a field, by name, starting with choices that only some variants have."""
        methods = cls.implemented()
        by_name = {choice.name: choice for method in methods for choice in method.choices.described()}
        with_field = [choice for choice in by_name.values() if choice.type is not dict or choice.kinds is not None]
        return {
            choice.name: choice for choice in sorted(with_field, key=lambda choice: not cls._variants_with(choice.name))
        }

    @classmethod
    def _variants_with(cls, name: str) -> tuple[str, ...]:
        """Return the variants that have a choice, or nothing if all of them have it."""
        having = [
            method for method in cls.implemented() if name in {choice.name for choice in method.choices.described()}
        ]
        if len(having) == len(cls.implemented()):
            return ()
        return tuple(variant for method in having for variant in method.variants)

    def _variants(self) -> list[str]:
        return [
            variant
            for method in self.implemented()
            for variant in method.variants
            if self.form.study.rehearsal or variant not in method.rehearsed_variants
        ]

    def _add(self, name: str, field: forms.Field, control: str = "", values: str = "") -> None:
        """Add a field. It is shown while ``control`` has one of the values, or always if ``control`` is empty."""
        self.form.fields[self.field(name)] = field
        self._place(name, control, values)

    def _place(self, name: str, control: str, values: str) -> None:
        self._placed.append((name, control, values))

    def _add_statements(self) -> None:
        for representation, statement in _STATEMENTS.items():
            label = _("I confirm: %(statement)s") % {"statement": _(statement)}
            field = forms.BooleanField(label=label, required=False)
            self._add(f"stated-{representation}", field, "representation", representation)

    def _condition(self, choice: Choice) -> tuple[str, str]:
        """Return the field that a choice depends on, and the values for which the choice applies (empty if always)."""
        for other, values in choice.only_if.items():
            return other, " ".join("" if value is None else str(value) for value in values)
        variants = self._variants_with(choice.name)
        return ("variant", " ".join(variants)) if variants and len(self._variants()) > 1 else ("", "")

    def _offered(self, name: str) -> bool:
        """Return whether any available variant has a choice."""
        variants = self._variants_with(name)
        return not variants or not set(variants).isdisjoint(self._variants())

    def _batch_help(self) -> str:
        return ""

    def _add_others(self) -> None:
        """Add fields that are not choices of the method."""

    # --- For the template ---------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        return [self._row(*placed) for placed in self._placed if placed[0] not in self.detailed]

    @property
    def detail_rows(self) -> list[Row]:
        return [self._row(*placed) for placed in self._placed if placed[0] in self.detailed]

    def _row(self, name: str, control: str, values: str) -> Row:
        groups = parameter_groups(self.form, name) if name in KINDS else []
        return Row(self._bound(name), self._bound(control) if control else None, values, groups)

    def _bound(self, name: str) -> BoundField:
        return self.form[self.field(name)]

    @property
    def has_errors(self) -> bool:
        return any(self.form[name].errors for name in self.names)

    @property
    def chosen(self) -> str:
        """Return the most important initial values as one line."""
        counted = [row for row in self.rows if row.control is None or str(row.control.value()) in row.values.split(" ")]
        return values_words([row.field for row in counted])

    @property
    def variant(self) -> BoundField:
        return self._bound("variant")

    @property
    def varies(self) -> bool:
        """Return whether variants have different choices."""
        return len(self.implemented()) > 1 and len(self._variants()) > 1

    # --- Chosen values ------------------------------------------------------------------------------------------------

    def _value(self, name: str) -> Any:
        return self.form.cleaned_data.get(self.field(name))

    def chosen_variant(self) -> str:
        return self._value("variant") or self._variants()[0]

    def _counts(self, choice: Choice) -> bool:
        """Return whether a choice applies, given the values of the others."""
        variants = self._variants_with(choice.name)
        others = {other: self._value(other) for other in choice.only_if}
        return (not variants or self.chosen_variant() in variants) and choice.applies(others)

    def uncounted(self) -> list[str]:
        """Return the method's fields that do not apply, given the values of its other fields."""
        names = [self.field(name) for name, choice in self.choices().items() if not self._counts(choice)]
        for choice in self.choices().values():
            if choice.kinds is not None:
                names += unused_parameters(self.form, self.field(choice.name))
        return names

    def check(self) -> None:
        """Add errors that no other check finds."""
        chosen = self._value("representation")
        if chosen in _STATEMENTS and not self._value(f"stated-{chosen}"):
            self.form.add_error(self.field(f"stated-{chosen}"), _("To use this, confirm the statement."))

    def run_fields(self) -> dict[str, Any]:
        """Return the method's own fields of the run, for ``run_propose``."""
        document: dict[str, Any] = {}
        for name, choice in self.choices().items():
            if not self._counts(choice):
                continue
            if choice.kinds is None:
                document[name] = self._chosen(choice)
            elif choice.parameters:
                document |= {
                    name: self._value(name),
                    choice.parameters: chosen_parameters(self.form, self.field(name)),
                }
            elif self._value(name):
                document[name] = {"name": self._value(name), **chosen_parameters(self.form, self.field(name))}
        variant = self.chosen_variant()
        batch_size = self._value("batch_size") or method_by(self.name, variant).batch_size
        return {"variant": variant, "choices": document, "batch_size": batch_size}

    def _chosen(self, choice: Choice) -> Any:
        if choice.name == "stated":
            return bool(self._value(f"stated-{self._value('representation')}"))
        value = self._value(choice.name)
        return value / 100 if choice.percent and value is not None else value

    def rehearsed(self) -> dict[str, Any]:
        """Return fields that the method adds to the parameters of a rehearsal."""
        return {}

    def place(self, name: str) -> str | None:
        """Return the form field that shows the errors of a field of the run; None to show them above the form."""
        role = name.removeprefix("choices.")
        beside = {choice.parameters: choice.name for choice in self.choices().values() if choice.parameters}
        place = self.field(beside.get(role, role))
        return place if place in self.names else None

    # --- Initial values -----------------------------------------------------------------------------------------------

    @classmethod
    def initial(cls, study: Study) -> dict[str, Any]:
        """Return sensible values for a first run."""
        usual = {name: choice.default for name, choice in cls.choices().items()}
        variant = cls.implemented()[0].variants[0]
        return cls._initial(usual) | {cls.field("variant"): variant, cls.field("batch_size"): cls.batch_size}

    @classmethod
    def initial_like(cls, run: Run) -> dict[str, Any]:
        """Return the values of an earlier run by this method, without statements, which have to be made again."""
        is_usual = cls.batch_size is None and run.batch_size == method_of(run).batch_size
        batch_size = None if is_usual else run.batch_size
        return cls._initial(run.choices) | {cls.field("variant"): run.variant, cls.field("batch_size"): batch_size}

    @classmethod
    def _initial(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, choice in cls.choices().items():
            value, field = document.get(name), cls.field(name)
            if choice.kinds is None:
                values[field] = round(100 * value, 9) if choice.percent and value is not None else value
            elif choice.parameters and value:
                values |= parameter_values(field, value, document.get(choice.parameters, {}))
            elif value:
                values |= parameter_values(field, value["name"], {of: value[of] for of in value if of != "name"})
        return values


def values_words(fields: Iterable[BoundField], most: int = 4) -> str:
    """Return the labels and values of the first fields that have a value, as one line."""
    words = []
    for bound in fields:
        value = bound.value()
        if value in (None, "", False):
            continue
        offered = {str(key): label for key, label in getattr(bound.field, "choices", None) or []}
        shown = "" if value is True else f": {offered.get(str(value), localize(value))}"
        words.append(f"{bound.label}{shown}")
    return " · ".join(words[:most])


def _column_field(choice: Choice, study: Study) -> forms.Field:
    """Return a field with the columns of the study's private datasets, which are public like their schemas."""
    schemas = study.datasets.filter(kind=Dataset.Kind.PRIVATE, removed_at=None).values_list("schema", flat=True)
    names = dict.fromkeys(name for schema in schemas for name in column_names(schema_from_json(schema)))
    required = choice.default is None
    offered = [*(() if required else [("", _("none"))]), *((name, name) for name in names)]
    return forms.ChoiceField(
        choices=offered, required=required, label=choice_label(choice), help_text=_(choice.help) if choice.help else ""
    )


def _encoder_field(choice: Choice, study: Study) -> forms.Field:
    """Return a field with the study's encoders."""
    encoders = Encoder.objects.filter(study=study, withdrawn_at=None)
    offered = [("", _("none")), *encoders.values_list("digest", "name")]
    return forms.ChoiceField(choices=offered, required=False, label=choice_label(choice), help_text=_(choice.help))


def _form_field(choice: Choice, *, rehearsal: bool) -> forms.Field:
    """Return the field of a choice that has no :attr:`Choice.kinds`."""
    texts: dict[str, Any] = {"label": choice_label(choice), "help_text": _(choice.help) if choice.help else ""}
    if choice.values is not None:
        offered = [
            (value, capfirst(_(label)))
            for value, label in choice.values.items()
            if rehearsal or value not in choice.rehearsed
        ]
        if choice.optional:
            offered.append(("", capfirst(_(choice.unset))))
        required = all(value != "" for value, _label in offered)
        empty = None if choice.optional else ""
        coerce: Callable[[Any], Any] = choice.type
        return forms.TypedChoiceField(choices=offered, coerce=coerce, required=required, empty_value=empty, **texts)
    if choice.type is bool:
        return forms.BooleanField(required=False, **texts)
    per = 100 if choice.percent else 1
    return number(
        whole=choice.type is int,
        required=not choice.optional,
        min_value=None if choice.minimum is None else round(per * choice.minimum, 12),
        max_value=None if choice.maximum is None else round(per * choice.maximum, 12),
        **texts,
    )


class NeighboursFields(MethodFields):
    """Fields of the method in which every holder votes."""

    name = Run.Method.NEIGHBOURS.value
    help = gettext_lazy(
        "People with records near a public point vote for the classes of these records, each person as often as "
        "their promise allows. Noisy counts are released. No teachers are trained, and small groups need no special "
        "treatment."
    )
    title = gettext_lazy("How holders vote")
    prefix = "asking"
    # Few commits, but counts appear soon.
    batch_size = 500


class PateFields(MethodFields):
    """Fields of the method in which teachers vote."""

    name = Run.Method.PATE.value
    help = gettext_lazy(
        "Holders' records are divided among teachers, each with its own model, and the teachers vote on the public "
        "points. This is Individualized PATE in the variants described in its papers."
    )
    title = gettext_lazy("Teachers")
    batch_size = 50
    counting: ClassVar = {"counted": "method", "conversion": "conversion"}
    """Fields that determine how a rehearsal counts costs, with their names in the run."""
    detailed = (*counting, "weight_scheme", "small_groups", "on_exhausted", "batch_size")
    details_title = gettext_lazy("Weights, small groups, and stopping when a share is used up")

    def _add_others(self) -> None:
        if self.form.study.rehearsal:
            for name, words, choices in (
                ("counted", _("How costs are calculated"), get_args(Method)),
                ("conversion", _("Conversion from RDP to ε"), get_args(Conversion)),
            ):
                offered = [(choice, _(ACCOUNTING[choice])) for choice in choices]
                initial = DEFAULTS[self.counting[name]]
                self._add(name, forms.ChoiceField(label=words, choices=offered, initial=initial))

    def rehearsed(self) -> dict[str, Any]:
        return {stored: self.form.cleaned_data[name] for name, stored in self.counting.items()}

    @classmethod
    def initial(cls, study: Study) -> dict[str, Any]:
        """Return choices with about 13 holders per teacher, and proportional noise and threshold.

        They are based on the study's head counts or, in a rehearsal, on the owners of its data. Without these numbers,
        the choices are left to the plan.
        """
        holders = sum(count.count for count in head_counts(study))
        private = study.datasets.filter(kind=Dataset.Kind.PRIVATE, removed_at=None).order_by("-imported_at").first()
        if study.rehearsal:
            holders = private.holders if private is not None else 0
        teachers = max(1, _round(holders / 13))
        # The form offers outcomes other than classes, although teachers do not vote on them.
        classes = (len(private.classes) if private is not None else 0) or 10
        learner = suggested_learner(private.schema["kind"] if private is not None else "table")
        values = super().initial(study) | {cls.field("variant"): Run.Variant.WEIGHTING.value, "teachers": teachers}
        for name, kind in AGGREGATORS.items():
            suggested = {spec.name: round(spec.suggested(teachers, classes), 2) for spec in kind.fields()}
            values |= parameter_values("aggregator", name, suggested)
        values |= parameter_values("learner", learner.name, learner_parameters(learner))
        if not study.rehearsal:
            return values | {"aggregator": "", "teachers": None}
        return values | {"aggregator": next(iter(AGGREGATORS))}

    @classmethod
    def initial_like(cls, run: Run) -> dict[str, Any]:
        counting = {name: run.rehearsed[stored] for name, stored in cls.counting.items()} if run.rehearsed else {}
        return super().initial_like(run) | counting


class SgdFields(MethodFields):
    """Fields of the method that takes private gradient steps."""

    name = Run.Method.SGD.value
    help = gettext_lazy(
        "A model learns step by step from the sum of holders' gradients with added noise. There is no vote: the "
        "student learns what the model predicts for the public points, or the model itself is published. Without a "
        "public dataset, the run first uses part of its share to count people, and rows drawn from the counts "
        "replace the public points."
    )
    title = gettext_lazy("How steps are taken")
    prefix = "steps"
    note = (
        gettext_lazy(
            "Holders are drawn randomly for each step, and the whole run is charged before its first step. You can "
            "leave the public dataset empty: then the model uses the records as they are, and there is no student."
        ),
        SgdSampled.variants,
    )

    def _batch_help(self) -> str:
        few, many = (method.batch_size for method in self.implemented())
        message = _(
            "The results of a batch are released together, and withdrawals take effect from the next batch on. Leave "
            "empty for the default: %(few)d, or %(many)d if holders are sampled."
        )
        return message % {"few": few, "many": many}


class CountsFields(MethodFields):
    """Fields of the method that counts people."""

    name = Run.Method.COUNTS.value
    help = gettext_lazy(
        "People are counted by one or two columns, and each cell of the table is released with noise and an interval "
        "for the true number. This needs no public points, trains nothing, and has no student."
    )
    title = gettext_lazy("What is counted")
    prefix = "counts"


class SynthesisFields(MethodFields):
    """Fields of the method that draws synthetic rows."""

    name = Run.Method.SYNTHESIS.value
    help = gettext_lazy(
        "People are counted in three rounds, and rows of people who do not exist are drawn from the noisy counts. "
        "The result is a table to explore and learn from. It also provides public points for further runs. This "
        "method needs no public points."
    )
    title = gettext_lazy("How rows are drawn")
    prefix = "synthesis"


def _round(number: float) -> int:
    """Round to tens if the number is large enough."""
    return 10 * round(number / 10) if number >= 45 else round(number)


METHOD_FIELDS: dict[str, type[MethodFields]] = {
    fields.name: fields for fields in (NeighboursFields, PateFields, SgdFields, CountsFields, SynthesisFields)
}
