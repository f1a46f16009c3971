"""Endpoints for the versions of a run's student: compare them, train another, publish another."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample
from rest_framework import exceptions, serializers
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
    created,
    operation,
    request_user,
)
from ipate_web.api.problems import CONFLICT, UNPROCESSABLE
from ipate_web.api.run_documents import visible_run
from ipate_web.tokens.models import Scope
from training.errors import STATE
from training.models import Run, StudentModel, StudentTraining
from training.selectors import run_versions
from training.services.students import student_ask, student_publish, student_withdraw

_LONGEST_REASON = StudentModel._meta.get_field("withdrawal_reason").max_length


def _interval(**options: Any) -> serializers.ListField:
    """Return a field for a 95 % confidence interval."""
    options_of_field = {"help_text": "95 % confidence interval; null if it cannot be computed."} | options
    return serializers.ListField(child=serializers.FloatField(), allow_null=True, **options_of_field)


class MajoritySerializer(serializers.Serializer):
    """Comparison with predicting the most frequent class for every point."""

    share = serializers.FloatField(help_text="Share of points for which this prediction is correct.")
    gain = serializers.FloatField(help_text="Accuracy of the model minus this share.")
    gain_interval = _interval()


class AnswersSerializer(serializers.Serializer):
    """Most frequent answer of a model."""

    points = serializers.IntegerField()
    share = serializers.FloatField(help_text="Share of all points that get this answer.")
    missed = serializers.FloatField(
        allow_null=True,
        help_text="Share of the points of other classes that get this answer; null if there are none. If this is 0.9 "
        "or more, the card warns that the model nearly always gives the same answer.",
    )


class LikeliestSerializer(serializers.Serializer):
    """Accuracies that a model with balanced answers would have if it answered with the most likely class."""

    accuracy = serializers.FloatField()
    interval = _interval(help_text="95 % confidence interval.")
    balanced_accuracy = serializers.FloatField()


class CalibrationBinSerializer(serializers.Serializer):
    """Points with similar predicted probabilities."""

    points = serializers.IntegerField()
    predicted = serializers.FloatField(help_text="Mean predicted probability.")
    observed = serializers.FloatField(help_text="Share of these points for which the prediction was correct.")
    interval = _interval()


class EvaluationSerializer(serializers.Serializer):
    """Rounded evaluation on the test dataset; for outcomes other than classes, it contains only points and measures."""

    points = serializers.IntegerField(help_text="Number of points in the test dataset.")
    measures = serializers.ListField(
        child=serializers.DictField(),
        help_text="Measures for outcomes other than classes. They replace all other measures of this object.",
    )
    accuracy = serializers.FloatField()
    interval = _interval(help_text="95 % confidence interval.")
    majority = MajoritySerializer()
    balanced_accuracy = serializers.FloatField(
        help_text="Mean over the classes of the share of each class's points that are classified "
        "correctly. Classes without points are left out."
    )
    balanced_accuracy_interval = _interval()
    likeliest = LikeliestSerializer()
    answers = AnswersSerializer()
    area = serializers.FloatField(
        allow_null=True,
        help_text="Area under the ROC curve for the second of two classes or, with more classes, the mean area for "
        "each class against the rest. Null if all points have the same class.",
    )
    area_interval = _interval()
    average_precision = serializers.FloatField(
        allow_null=True, help_text="Area under the precision–recall curve, calculated for the same classes as `area`."
    )
    average_precision_interval = _interval()
    brier = serializers.FloatField(help_text="Half the mean squared error of the probabilities, from 0 to 1.")
    brier_interval = _interval()
    log_loss = serializers.FloatField(
        allow_null=True, help_text="Log loss (natural logarithm) without clipping; null if it is infinite."
    )
    log_loss_interval = _interval()
    impossible = serializers.IntegerField(help_text="Number of points whose true class has probability 0.")
    base_log_loss = serializers.FloatField(help_text="Log loss of predicting the classes' shares for every point.")
    confidence = serializers.FloatField(help_text="Mean probability of the likeliest class.")
    calibration_error = serializers.FloatField(
        help_text="Expected calibration error, over bins with equal numbers of points."
    )
    calibration_error_interval = _interval()
    calibration = CalibrationBinSerializer(many=True)
    confusion = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="Shares of each true class (rows) that are predicted as each class (columns); null for a "
        "class without points.",
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        """Return the fields; the evaluation of a model has only those that apply to its outcome."""
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = name == "points"
        return fields


class StudentVersionSerializer(ComputedSerializer):
    """One version of a run's student. GET /api/v1/models/{run}?version=… returns its card."""

    published = serializers.BooleanField(help_text="Whether this version is the run's published model.")
    parameters = serializers.DictField(source="card.learner.parameters")
    score = serializers.FloatField(
        allow_null=True,
        help_text="Score for choosing a version (higher is better): agreement with a fifth of the releases after "
        "learning from the rest. Null until it has been computed.",
    )
    evaluation = EvaluationSerializer(
        source="card.evaluation",
        allow_null=True,
        help_text="Evaluation on the test dataset. Do not use it to choose a version.",
    )
    reference = EvaluationSerializer(
        allow_null=True, help_text="Evaluation of the same student, trained on the true labels of the public points."
    )
    requested_by = UserField("requested_by")
    created_at = MinuteField(help_text="Time the version was created, to the minute.")
    publication_reason = serializers.CharField(
        help_text="Reason that a person gave for publishing the version; empty if none was given."
    )
    withdrawn_at = MinuteField(
        allow_null=True,
        help_text="Time the version was withdrawn, to the minute; null if it was not. A withdrawn version "
        "can no longer be downloaded or used here.",
    )
    withdrawal_reason = serializers.CharField(
        help_text="Reason for the withdrawal; empty unless the version was withdrawn."
    )

    class Meta:
        model = StudentModel
        fields = [
            *("version", "published", "learner", "parameters", "seed", "score", "evaluation", "reference"),
            *("seconds", "digest", "requested_by", "created_at", "publication_reason"),
            *("withdrawn_at", "withdrawal_reason"),
        ]
        extra_kwargs = {
            "learner": {"help_text": "Name of the learner that the version was trained with."},
            "seed": {"help_text": "Public seed: the same releases and seed give the same model."},
            "seconds": {"help_text": "Duration of the training, in seconds; null if unknown."},
        }

    def get_published(self, version: StudentModel) -> bool:
        return version.pk == version.run.student_id


class StudentTrainingSerializer(serializers.ModelSerializer):
    """Another version that is being trained, or whose training failed."""

    message = serializers.CharField(help_text="Reason why the training failed; empty while it is in progress.")
    requested_by = UserField("requested_by")

    class Meta:
        model = StudentTraining
        fields = ["learner", "parameters", "progress", "message", "requested_by", "requested_at"]
        extra_kwargs = {"progress": {"help_text": "Completed share of the training, from 0 to 1."}}


class StudentsSerializer(serializers.Serializer):
    versions = StudentVersionSerializer(many=True)
    training = StudentTrainingSerializer(allow_null=True)


class StudentRequestSerializer(StrictSerializer):
    student_learner = serializers.CharField(help_text="Name of a student that GET /api/v1/students lists.")
    student_parameters = serializers.DictField(
        required=False, help_text="Parameters of the student. Parameters you leave out take their default values."
    )


class PublicationSerializer(StrictSerializer):
    reason = serializers.CharField(
        required=False,
        max_length=_LONGEST_REASON,
        help_text="Reason, shown on the card; required for a version that the run would not publish automatically.",
    )


class WithdrawalSerializer(StrictSerializer):
    reason = serializers.CharField(
        max_length=_LONGEST_REASON, help_text="Reason, shown to everyone who downloaded the model or requests it."
    )


def students_document(run: Run) -> dict[str, Any]:
    """Return the API's document of the versions of a run's student, and of any training in progress."""
    versions = run_versions(run)
    return StudentsSerializer({"versions": versions.all, "training": versions.training}).data


def _version_or_404(run: Run, version: int) -> StudentModel:
    student = run.students.filter(version=version).first()
    if student is None:
        raise exceptions.NotFound(
            "This version does not exist. GET /api/v1/runs/{id}/students lists the run's versions."
        )
    return student


class RunStudents(ApiView):
    """All versions of a run's student."""

    @operation("Versions of a run's student", "labels and models", StudentsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """List all versions by number, with their learner, parameters and evaluation, and any training in progress."""
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
        """Train the student of a finished run again from its releases. This has no privacy cost."""
        run = visible_run(request.user, pk, "training.propose_run")
        body = body_of(request, StudentRequestSerializer)
        student_ask(run=run, acting_user=request_user(request), **{"student_parameters": {}, **body})
        return created(students_document(run), "run-students", pk, status=HTTPStatus.ACCEPTED)


class RunStudentPublish(ApiView):
    scope = Scope.DECIDE

    @operation("Publish a version (operators)", "labels and models", StudentsSerializer, request=PublicationSerializer)
    def post(self, request: Request, pk: UUID, version: int) -> Response:
        """Make a version the run's published model. The change is logged. Other versions remain available by number."""
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
        """Withdraw a version permanently.

        This is logged. The version becomes unavailable, and people who downloaded it are notified.
        """
        run = visible_run(request.user, pk, "training.withdraw_model")
        chosen = _version_or_404(run, version)
        body = body_of(request, WithdrawalSerializer)
        if chosen.is_withdrawn:
            raise ValidationError("This version has already been withdrawn.", code=STATE)
        student_withdraw(run=run, version=version, acting_user=request_user(request), **body)
        return Response(students_document(run))
