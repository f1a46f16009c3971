"""Endpoints of the versions of a run's student: compare, train another, publish another."""

from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import (
    IDEMPOTENCY_KEY,
    ApiView,
    ComputedSerializer,
    MinuteField,
    StrictSerializer,
    UserField,
    body_of,
    operation,
    request_user,
)
from ipate_web.api.problems import CONFLICT, UNPROCESSABLE
from ipate_web.api.run_documents import visible_run
from ipate_web.tokens.models import Scope
from training.errors import STATE
from training.models import Run, StudentModel, StudentTraining
from training.selectors import run_versions
from training.services.students import student_publish, student_withdraw
from training.services.trainings import student_ask

_LONGEST_REASON = StudentModel._meta.get_field("withdrawal_reason").max_length


def _interval(**options: Any) -> serializers.ListField:
    """A 95 % confidence interval."""
    options_of_field = {"help_text": "95 % confidence interval; null where the points do not tell."} | options
    return serializers.ListField(child=serializers.FloatField(), allow_null=True, **options_of_field)


class MajoritySerializer(serializers.Serializer):
    """Whoever says the most frequent class of every point."""

    share = serializers.FloatField(help_text="How often that is right.")
    gain = serializers.FloatField(help_text="By how much the model is right more often.")
    gain_interval = _interval()


class CalibrationBinSerializer(serializers.Serializer):
    """Points of similar predicted probability."""

    points = serializers.IntegerField()
    predicted = serializers.FloatField(help_text="Mean predicted probability.")
    observed = serializers.FloatField(help_text="Share of the points for which it came true.")
    interval = _interval()


class EvaluationSerializer(serializers.Serializer):
    """Evaluation of a model on the test dataset; all rounded. Of another outcome than classes points and measures."""

    points = serializers.IntegerField(help_text="Of the test dataset.")
    measures = serializers.ListField(
        child=serializers.DictField(), help_text="Of another outcome than classes, in place of all others."
    )
    accuracy = serializers.FloatField()
    interval = _interval(help_text="95 % confidence interval.")
    majority = MajoritySerializer()
    area = serializers.FloatField(
        allow_null=True,
        help_text="Under the receiver operating characteristic: of the second of two classes, of more the mean of each "
        "against the rest. Null where all points have one class.",
    )
    area_interval = _interval()
    average_precision = serializers.FloatField(
        allow_null=True, help_text="Area under precision and recall, of the same classes."
    )
    average_precision_interval = _interval()
    brier = serializers.FloatField(help_text="Mean squared error of the probabilities, halved; 0 to 1.")
    brier_interval = _interval()
    log_loss = serializers.FloatField(
        allow_null=True, help_text="Natural logarithm, nothing cut off. Null where it is infinite."
    )
    log_loss_interval = _interval()
    impossible = serializers.IntegerField(help_text="Points whose true class has probability 0.")
    base_log_loss = serializers.FloatField(help_text="Log loss of whoever says the classes' shares of every point.")
    confidence = serializers.FloatField(help_text="Mean probability of the likeliest class.")
    calibration_error = serializers.FloatField(help_text="Expected calibration error, over bins of as many points.")
    calibration_error_interval = _interval()
    calibration = CalibrationBinSerializer(many=True)
    confusion = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="Of each true class (rows) the shares that are taken for each class; null of a class without points.",
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        """Fields, of which a model has those of its outcome."""
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = name == "points"
        return fields


class StudentVersionSerializer(ComputedSerializer):
    """One version of a run's student; GET /api/v1/models/{run}?version=… has its card."""

    published = serializers.BooleanField(help_text="Whether it is the one that the run's model is.")
    parameters = serializers.DictField(source="card.learner.parameters")
    score = serializers.FloatField(
        allow_null=True,
        help_text="What to choose by, larger is better: agreement with a fifth of the releases, having learned from "
        "the others. Null until it is computed.",
    )
    evaluation = EvaluationSerializer(source="card.evaluation", allow_null=True, help_text="Not to choose by.")
    reference = EvaluationSerializer(
        allow_null=True, help_text="The same student, having learned from true labels of the public points."
    )
    requested_by = UserField("requested_by")
    created_at = MinuteField(help_text="To the minute.")
    publication_reason = serializers.CharField(
        help_text="Why a person published it, where the run would not have done so by itself."
    )
    withdrawn_at = MinuteField(allow_null=True, help_text="Null unless it was withdrawn: then it is not given.")
    withdrawal_reason = serializers.CharField(help_text="Empty unless it was withdrawn.")

    class Meta:
        model = StudentModel
        fields = [
            *("version", "published", "learner", "parameters", "seed", "score", "evaluation", "reference"),
            *("seconds", "digest", "requested_by", "created_at", "publication_reason"),
            *("withdrawn_at", "withdrawal_reason"),
        ]

    def get_published(self, version: StudentModel) -> bool:
        return version.pk == version.run.student_id


class StudentTrainingSerializer(serializers.ModelSerializer):
    """Another version that is being trained, or that could not be."""

    message = serializers.CharField(help_text="Why nothing came of it; empty while it is under way.")
    requested_by = UserField("requested_by")

    class Meta:
        model = StudentTraining
        fields = ["learner", "parameters", "progress", "message", "requested_by", "requested_at"]


class StudentsSerializer(serializers.Serializer):
    versions = StudentVersionSerializer(many=True)
    training = StudentTrainingSerializer(allow_null=True)


class StudentRequestSerializer(StrictSerializer):
    student_learner = serializers.CharField(help_text="One that GET /api/v1/students lists.")
    student_parameters = serializers.DictField(
        required=False, help_text="Parameters you leave out have their defaults."
    )


class PublicationSerializer(StrictSerializer):
    reason = serializers.CharField(
        required=False,
        max_length=_LONGEST_REASON,
        help_text="Needed for a version that a run would not publish by itself; its card shows it.",
    )


class WithdrawalSerializer(StrictSerializer):
    reason = serializers.CharField(
        max_length=_LONGEST_REASON, help_text="Everyone who downloaded the model or asks for it sees this."
    )


def students_document(run: Run) -> dict[str, Any]:
    """The versions of a run's student, and the training of another, as the API tells them."""
    versions = run_versions(run)
    return StudentsSerializer({"versions": versions.all, "training": versions.training}).data


def _version_or_404(run: Run, version: int) -> StudentModel:
    student = run.students.filter(version=version).first()
    if student is None:
        raise exceptions.NotFound("The run has no such version. GET /api/v1/runs/{id}/students lists them.")
    return student


class RunStudents(ApiView):
    """The versions of a run's student."""

    @operation("Versions of a run's student", "labels and models", StudentsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """All versions by number, what they learned with, and how they compare; and the training under way, if any."""
        return Response(students_document(visible_run(request.user, pk)))

    @operation(
        "Train another version",
        "labels and models",
        StudentsSerializer,
        CONFLICT,
        UNPROCESSABLE,
        status=202,
        request=StudentRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        examples=[
            OpenApiExample(
                "Another learner",
                request_only=True,
                value={"student_learner": "boosting", "student_parameters": {"iterations": 200}},
            )
        ],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Train the student of a finished run anew, from what was released. It costs nobody anything."""
        run = visible_run(request.user, pk, "training.propose_run")
        body = body_of(request, StudentRequestSerializer)
        student_ask(run=run, acting_user=request_user(request), **{"student_parameters": {}, **body})
        return Response(students_document(run), status=status.HTTP_202_ACCEPTED)


class RunStudentPublish(ApiView):
    scope = Scope.DECIDE

    @operation("Publish a version (operators)", "labels and models", StudentsSerializer, request=PublicationSerializer)
    def post(self, request: Request, pk: UUID, version: int) -> Response:
        """Make a version the run's model, on record. The others stay, and can be had by their number."""
        run = visible_run(request.user, pk, "training.approve_run")
        _version_or_404(run, version)
        body = body_of(request, PublicationSerializer)
        published = student_publish(run=run, version=version, acting_user=request_user(request), **body)
        return Response(students_document(published))


class RunStudentWithdraw(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Withdraw a version (operators)",
        "labels and models",
        StudentsSerializer,
        CONFLICT,
        request=WithdrawalSerializer,
        examples=[
            OpenApiExample("A defect", request_only=True, value={"reason": "It misreads records without an age."})
        ],
    )
    def post(self, request: Request, pk: UUID, version: int) -> Response:
        """Withdraw a version for good, on record: it is given to nobody any more, and those who took it are told."""
        run = visible_run(request.user, pk, "training.withdraw_model")
        chosen = _version_or_404(run, version)
        body = body_of(request, WithdrawalSerializer)
        if chosen.is_withdrawn:
            raise ValidationError("This version was withdrawn already, and stays so.", code=STATE)
        student_withdraw(run=run, version=version, acting_user=request_user(request), **body)
        return Response(students_document(run))
