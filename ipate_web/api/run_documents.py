"""Documents of runs in the API."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache, cached_property
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from pydantic.fields import FieldInfo
from rest_framework import exceptions, serializers

from common.declarations import MAY_BE_MISSING
from common.sentences import Sentence, in_words
from consent.models import Level
from ipate_web.api.base import ComputedSerializer, MinuteField, UserField, permission_check
from learning.forecasts import Forecast
from training.comparison import forecast_outcomes
from training.models import Run
from training.outlook import GroupCost, Outlook, Result, outlook
from training.queue import Wait, run_wait
from training.selectors import run_progress, run_promises, run_reason, runs_visible_to, without_model

_Serializer = TypeVar("_Serializer", bound=type[serializers.Serializer])
_PLAIN: dict[Any, type[serializers.Field]] = {
    bool: serializers.BooleanField,
    float: serializers.FloatField,
    int: serializers.IntegerField,
    str: serializers.CharField,
    Sentence: serializers.CharField,
}
_SERIALIZERS: dict[Any, type[serializers.Serializer]] = {}


def declared_by(kind: type) -> Callable[[_Serializer], _Serializer]:
    """Give a serializer the fields that a dataclass declares, before its own fields."""

    def declared(serializer: _Serializer) -> _Serializer:
        own = serializer.get_fields

        def get_fields(self: serializers.Serializer) -> dict[str, serializers.Field]:
            return {name: _field(about, is_blank) for name, about, is_blank in _declared(kind)} | own(self)

        serializer.get_fields = get_fields  # type: ignore[method-assign]
        _SERIALIZERS[kind] = serializer
        return serializer

    return declared


@cache
def _declared(kind: type) -> list[tuple[str, FieldInfo, bool]]:
    """Return the name and description of each documented field, and whether it may be an empty string."""
    hints = get_type_hints(kind, include_extras=True)
    abouts = [(each, FieldInfo.from_annotation(hints[each.name])) for each in fields(kind)]
    return [
        (each.name, about, each.default is not MISSING and each.default == "")
        for each, about in abouts
        if not about.exclude
    ]


def _field(about: FieldInfo, is_blank: bool) -> serializers.Field:
    """Return a serializer field for a field of a dataclass."""
    options: dict[str, Any] = {} if about.description is None else {"help_text": about.description}
    options |= {"required": False} if MAY_BE_MISSING in about.metadata else {}
    options |= {"allow_blank": True} if is_blank else {}
    of: Any = about.annotation
    if NoneType in get_args(of):
        of, options["allow_null"] = get_args(of)[0], True
    if isinstance(about.json_schema_extra, dict):
        return serializers.ChoiceField(about.json_schema_extra["enum"], **options)  # type: ignore[arg-type]
    if get_origin(of) is tuple:
        each = get_args(of)[0]
        if each in _SERIALIZERS:
            return _SERIALIZERS[each](many=True, **options)
        return serializers.ListField(child=_PLAIN[each](), **options)
    return (_PLAIN.get(of) or _SERIALIZERS[of])(**options)


def visible_run(user: Any, pk: UUID, permission: str = "") -> Run:
    """Return the run if ``user`` may see it and has any given permission in its study.

    Raises:
        NotFound: there is no such run, or the user may not see it.
        PermissionDenied: the user's role in the study does not include the permission.
    """
    run = runs_visible_to(user).select_related("public_dataset", "created_by", "student").filter(pk=pk).first()
    if run is None:
        raise exceptions.NotFound("There is no such run, or none that you may see. GET /api/v1/runs lists yours.")
    if permission:
        permission_check(user, permission, run.study)
    return run


class RunSerializer(ComputedSerializer):
    study: serializers.SlugRelatedField = serializers.SlugRelatedField(
        slug_field="slug", read_only=True, label="Study", help_text="Slug of the study."
    )
    labels = serializers.IntegerField(read_only=True, help_text="Number of queries that were answered.")
    reinforced = serializers.IntegerField(
        read_only=True, help_text="Number of queries that keep the student's own label, at no cost (Interactive-GNMax)."
    )
    rejected = serializers.IntegerField(read_only=True, help_text="Number of queries without a label.")
    accuracy = serializers.FloatField(
        source="student.accuracy",
        allow_null=True,
        help_text="Accuracy of the run's published model on the test data, rounded; null if unknown.",
    )
    majority = serializers.SerializerMethodField(
        help_text="Share of the most frequent class in the test data, rounded; null without a published model."
    )
    balanced_accuracy = serializers.SerializerMethodField(
        help_text="Mean over the classes of the share of each class's test points that the published model classifies "
        "correctly, rounded. If it is far below `accuracy`, the model mostly answers with the most frequent class. "
        "Null without a published model."
    )
    created_by = UserField("created_by")
    ended_at = MinuteField(allow_null=True, help_text="Time the run ended, to the minute; null until then.")

    class Meta:
        model = Run
        fields = [
            *("id", "study", "title", "method", "variant", "status", "rehearsal", "labels"),
            *("reinforced", "rejected", "stop_reason"),
            *("accuracy", "majority", "balanced_accuracy", "created_by", "created_at", "ended_at"),
        ]

    def get_majority(self, run: Run) -> float | None:
        return (_evaluation(run).get("majority") or {}).get("share")

    def get_balanced_accuracy(self, run: Run) -> float | None:
        return _evaluation(run).get("balanced_accuracy")


def _evaluation(run: Run) -> dict[str, Any]:
    """Return the evaluation of a run's published model; empty without one."""
    if run.student is None:
        return {}
    # Lists load this as a column of their query, without the rest of the card.
    return (vars(run)["evaluation"] if "evaluation" in vars(run) else run.student.card.get("evaluation")) or {}


class StageSerializer(serializers.Serializer):
    """A stage of a run in progress."""

    stage = serializers.CharField(
        help_text="Name of the stage: “people” or “teachers” while the run is preparing, then “asking”."
    )
    share = serializers.FloatField(
        help_text="Completed share of the stage, from 0 to 1. While teachers are trained, it advances in steps of "
        "0.1, or one teacher at a time if there are fewer than ten."
    )


class ProgressSerializer(serializers.Serializer):
    """Progress of a run."""

    stages = StageSerializer(many=True, help_text="Stages of the run, in order.")
    queries = serializers.IntegerField(
        help_text="Number of public points put to the vote so far, or of gradient steps taken."
    )
    points = serializers.IntegerField(help_text="Total number of public points, or of planned gradient steps.")
    labels = serializers.IntegerField(help_text="Number of queries answered so far.")
    student = serializers.FloatField(
        allow_null=True, help_text="Progress of the student in training, from 0 to 1; null if none is being trained."
    )


class PromiseSerializer(serializers.Serializer):
    """Promise to the holders of one level. It covers everything that the study releases."""

    level = serializers.ChoiceField(Level.choices)
    epsilon = serializers.FloatField(help_text="ε at the study's δ.")


@declared_by(Forecast)
class ForecastSerializer(serializers.Serializer):
    """Forecast of the share of correct results, based on public points and head counts."""


class ForecastOutcomeSerializer(ForecastSerializer):
    """A forecast made at approval, with the actual result."""

    came = serializers.FloatField(allow_null=True, help_text="Measured share; null if none was measured.")
    inside = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the measured share lies in the interval, allowing for rounding; null if none was measured.",
    )


@declared_by(GroupCost)
class GroupCostSerializer(serializers.Serializer):
    """Cost of a run for each member of a privacy group, as ε at the study's δ."""


@declared_by(Result)
class ResultSerializer(serializers.Serializer):
    """Result of a run that has ended."""


@declared_by(Outlook)
class OutlookSerializer(serializers.Serializer):
    """Expected results and costs of a run, and its result once it has ended."""


def outlook_document(run: Run, plan: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the `outlook` of a run as JSON, with sentences for people."""
    expected = outlook(run, plan)
    return None if expected is None else in_words(expected.to_json())


@extend_schema_field({"type": "object"})
class ChoicesField(serializers.DictField):
    """Document of the method's own choices, as described by their dataclass."""


class RunDetailSerializer(RunSerializer):
    progress = ProgressSerializer()
    place = serializers.IntegerField(
        allow_null=True,
        help_text="Position in the queue of approved runs that no worker has started, from 1; null for other runs.",
    )
    expected_start = MinuteField(
        allow_null=True, help_text="Expected start of a run in the queue, to the minute; null if unknown."
    )
    promises = PromiseSerializer(many=True)
    forecasts = ForecastOutcomeSerializer(
        many=True, help_text="Forecasts of the approved plan, with the actual results."
    )
    outlook = OutlookSerializer(
        allow_null=True,
        help_text="Results and costs expected at the time of approval, with the actual ones; null before the approval.",
    )
    choices = ChoicesField()
    model = serializers.UUIDField(allow_null=True, help_text="Id of the run's student model; null until there is one.")
    reason = serializers.CharField(
        help_text="Reason why the run ended, or why the last approval of a draft failed; otherwise empty."
    )
    without_model = serializers.CharField(
        help_text="Explanation of why a finished run that should produce a model has not published one; otherwise "
        "empty."
    )
    message = serializers.CharField(
        allow_null=True,
        help_text="Reason why the run failed or is waiting; null for users who are not staff of the study.",
    )
    approved_at = MinuteField(allow_null=True, help_text="Time of the approval, to the minute; null until then.")
    started_at = MinuteField(
        allow_null=True, help_text="Time a worker started the run, to the minute; null until then."
    )
    spending_began_at = MinuteField(
        allow_null=True, help_text="Time the run began to use its share, to the minute; null until then."
    )
    rehearsed = serializers.DictField(
        help_text="Settings of a rehearsal: levels with their share and ε, the accounting method, and the "
        "conversion of costs."
    )
    outcome = serializers.DictField(
        help_text="Result of a rehearsal: the ε that each level spent by the published papers' accounting."
    )

    class Meta(RunSerializer.Meta):
        fields = [
            *RunSerializer.Meta.fields,
            *("purpose", "private_dataset", "public_dataset", "test_dataset", "labelled_dataset", "choices"),
            *("student_learner", "student_parameters"),
            *("batch_size", "wanted_labels", "seed", "rehearsed", "outcome", "share"),
            *("revision", "approved_at", "started_at", "spending_began_at"),
        ]
        extra_kwargs = {
            "public_dataset": {"help_text": "Id of the dataset of public points; null if the run has none."},
            "labelled_dataset": {
                "help_text": "Id of a public dataset from whose labels the student also learns; null if there is none."
            },
            "revision": {"help_text": "Revision of the proposal, which increases with each change to the draft."},
        }

    def get_progress(self, run: Run) -> dict[str, Any]:
        progress = run_progress(run)
        return {
            "stages": [{"stage": stage.name, "share": stage.share} for stage in progress.stages],
            "queries": progress.position,
            "points": progress.size,
            "labels": progress.labels,
            "student": progress.student,
        }

    @cached_property
    def _wait(self) -> Wait | None:
        return run_wait(cast(Run, self.instance))

    def get_place(self, run: Run) -> int | None:
        return self._wait.place if self._wait else None

    def get_expected_start(self, run: Run) -> datetime | None:
        return self._wait.starts if self._wait else None

    def get_promises(self, run: Run) -> list[dict[str, Any]]:
        return run_promises(run)

    def get_forecasts(self, run: Run) -> list[dict[str, Any]]:
        return [in_words(each.to_json()) for each in forecast_outcomes(run)]

    def get_outlook(self, run: Run) -> dict[str, Any] | None:
        return outlook_document(run)

    def get_model(self, run: Run) -> UUID | None:
        return run.pk if run.student_id else None

    def get_reason(self, run: Run) -> str:
        return run_reason(run)

    def get_without_model(self, run: Run) -> str:
        return without_model(run)

    def get_message(self, run: Run) -> str | None:
        """Return the message for users who can act on it."""
        return run.message if self.context["user"].has_perm("consent.view_dashboard", run.study) else None


def run_document(run: Run, user: Any) -> dict[str, Any]:
    """Return a run as the API describes it to ``user``: parameters, progress, promises and releases."""
    return RunDetailSerializer(run, context={"user": user}).data
