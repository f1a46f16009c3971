"""Base classes and permission checks of all API endpoints."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar, cast

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.urls import reverse
from django.utils.http import http_date
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, serializers
from rest_framework.fields import empty
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from common import __version__
from common.repeats import handled_once
from consent.models import Study
from consent.permissions import studies_with_permission
from ipate_web.api.problems import KINDS, problem
from ipate_web.api.requests import rate_headers
from ipate_web.repeats import RULES, Repeat, digest_of
from ipate_web.tokens.models import Scope

Endpoint = TypeVar("Endpoint", bound=Callable[..., HttpResponseBase])

KEY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = OpenApiParameter(
    KEY_HEADER,
    {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="String of your choice, different for every request. If you repeat a request with the "
    "same key within seven days, it is not carried out again and you get the first response.",
)
_KEY = re.compile(r"[!-~]{1,100}")


@dataclass(frozen=True)
class Retirement:
    """End of an operation: deprecated ``since`` a day, and removed at ``sunset``, at least `LEAST_NOTICE` later."""

    since: date
    sunset: date

    def headers(self) -> dict[str, str]:
        """Return `Deprecation` (RFC 9745) and `Sunset` (RFC 8594)."""
        since, sunset = (
            int(datetime(*day.timetuple()[:3], tzinfo=UTC).timestamp()) for day in (self.since, self.sunset)
        )
        return {"Deprecation": f"@{since}", "Sunset": http_date(sunset)}


LEAST_NOTICE = timedelta(days=365)


class ApiView(APIView):
    """Endpoint whose responses depend on the user and are therefore never cached.

    Attributes:
        query_class: Serializer of the query parameters; None if pagination parameters are the only ones.
        retirement: When its operations were deprecated and will be removed; None if they are not deprecated.
        scope: Scope that a token needs to change something.
        reading_scope: Scope that a token needs to read.
        query: Validated query parameters, read after authentication; unknown and malformed ones are refused.
    """

    query_class: ClassVar[type[serializers.Serializer] | None] = None
    retirement: ClassVar[Retirement | None] = None
    scope: ClassVar[Scope] = Scope.PROPOSE
    reading_scope: ClassVar[Scope] = Scope.READ
    query: dict[str, Any]
    _throttles: Sequence[Any] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            # A redirect would turn POST into GET, and hide that the token was sent unencrypted.
            raise exceptions.PermissionDenied(
                "Send requests over https:// only. This token was sent unencrypted: revoke it and create another.",
                "https-required",
            )
        super().initial(request, *args, **kwargs)
        self.query = self._query_checked(request)
        key, match = request.headers.get(KEY_HEADER), request.resolver_match
        is_keyed = match is not None and RULES.get(match.view_name) is Repeat.KEY
        if request.method == "POST" and is_keyed and key is not None:
            if not _KEY.fullmatch(key):
                message = "Give 1 to 100 printable ASCII characters without spaces."
                raise serializers.ValidationError({KEY_HEADER: message})
            self._first_answer_repeat(key)

    def perform_authentication(self, request: Request) -> None:
        if not request.headers.get("Authorization", "").isascii():  # which Knox would fail to read
            raise exceptions.AuthenticationFailed("Tokens contain only ASCII characters.")
        super().perform_authentication(request)

    def _first_answer_repeat(self, key: str) -> None:
        """Make this view repeat its first response if a POST with the same key was sent before."""
        handle: Callable[..., Response] = self.post  # type: ignore[has-type]

        def post(request: Request, *args: Any, **kwargs: Any) -> Response:
            sent, files = request.data, request.FILES
            if isinstance(sent, QueryDict):
                sent = {name: texts for name, texts in sent.lists() if name not in files}
            return handled_once(
                lambda: handle(request, *args, **kwargs),
                key=key,
                of=(str(request.user.pk), request.path),
                digest=digest_of(sent, files),
                stored=_answer_stored,
                restored=_answer_restored,
            )

        self.post = post

    def _query_checked(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        chosen = self.query_class(data=query.dict()) if self.query_class else None
        known = [*(chosen.fields if chosen else ()), *pagination_parameters(self)]
        if len(self.renderer_classes) > 1:
            known.append(api_settings.URL_FORMAT_OVERRIDE)
        message = f"Use: {', '.join(known)}." if known else "There are none here."
        errors = dict.fromkeys(sorted(set(query) - set(known)), f"There is no such parameter. {message}")
        errors |= {name: "Give it once." for name, values in query.lists() if len(values) > 1}
        if errors:
            raise serializers.ValidationError(errors)
        if chosen is None:
            return {}
        chosen.is_valid(raise_exception=True)
        return chosen.validated_data

    def get_throttles(self) -> list[Any]:
        self._throttles = super().get_throttles()
        return self._throttles

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        for name, value in (
            rate_headers(self._throttles) | (self.retirement.headers() if self.retirement else {})
        ).items():
            response.headers[name] = value
        return response

    def options(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]
        """Return only the header ``Allow``, for any renderer; GET /api/schema describes the rest."""
        response = HttpResponse(status=HTTPStatus.NO_CONTENT)
        del response["Content-Type"]
        return response


def created(document: Any, name: str, *arguments: Any, status: int = HTTPStatus.CREATED) -> Response:
    """Return a response whose ``Location`` is the named URL of the resource that was created or started."""
    return Response(document, status=status, headers={"Location": reverse(f"api:{name}", args=arguments)})


def _answer_stored(response: Response) -> bytes:
    headers = {name: response[name] for name in ("Location",) if name in response}
    return JSONRenderer().render({"status": response.status_code, "data": response.data, "headers": headers})


def _answer_restored(content: bytes) -> Response:
    return Response(**json.loads(content))


def pagination_parameters(view: APIView) -> list[str]:
    """Return the names of the pagination parameters; none if the view is not a list."""
    pagination = getattr(view, "pagination_class", None)
    if pagination is None or not issubclass(pagination, LimitOffsetPagination):
        return []
    return [pagination.limit_query_param, pagination.offset_query_param]


class IdField(serializers.PrimaryKeyRelatedField):
    """Id of a row as an integer, so 1.5 and true do not refer to row 1."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("incorrect_type", data_type=type(data).__name__)
        return super().to_internal_value(data)


class UserField(serializers.CharField):
    """Name of a user; None if the account has been deleted."""

    def __init__(self, of: str) -> None:
        super().__init__(
            source=f"{of}.username",
            allow_null=True,
            help_text="Name of the user; null if the account no longer exists.",
        )


class MinuteField(serializers.DateTimeField):
    """Time rounded down to the minute, because the duration of a computation may depend on private records."""

    def to_representation(self, value: datetime) -> str:
        return super().to_representation(value.replace(second=0, microsecond=0))


class StrictSerializer(serializers.Serializer):
    # Serializer that refuses unknown fields and values of the wrong type: a number as text, "nan", or true as a number.
    # This is a comment for the same reason as in `ComputedSerializer`.

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            known = ", ".join(name for name, field in self.fields.items() if not field.read_only)
            raise serializers.ValidationError(dict.fromkeys(unknown, f"There is no such field. Use: {known}."))
        texts = [name for name, field in self.fields.items() if isinstance(field, serializers.CharField)]
        numbers = [name for name in texts if isinstance(data, dict) and isinstance(data.get(name), int | float)]
        if numbers:
            raise serializers.ValidationError(dict.fromkeys(numbers, "Give a string, in quotation marks."))
        if isinstance(data, dict) and not isinstance(data, QueryDict):  # forms send numbers as text
            counted = (serializers.FloatField, serializers.IntegerField, serializers.DecimalField)
            wrong = [
                name
                for name, field in self.fields.items()
                if isinstance(field, counted) and isinstance(data.get(name), bool | str)
            ]
            if wrong:
                raise serializers.ValidationError(dict.fromkeys(wrong, "Give a number, without quotation marks."))
        return super().to_internal_value(data)


class ComputedSerializer(serializers.ModelSerializer):
    # Serializer for a model with computed fields: a declared field takes its value from the method ``get_<field>``, if
    # there is one. Declared fields that are missing from ``Meta.fields`` follow the others, in the order of
    # declaration. This is a comment because the schema would repeat a docstring for each serializer that has none.

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        for name, field in fields.items():
            if not isinstance(field, serializers.SerializerMethodField):
                field.get_attribute = getattr(self, f"get_{name}", field.get_attribute)  # type: ignore[method-assign]
        return fields

    def get_field_names(self, declared_fields: Mapping[str, serializers.Field], info: Any) -> list[str]:
        return list(dict.fromkeys([*self.Meta.fields, *declared_fields]))


def operation(
    summary: str, tag: str, answer: Any = empty, *errors: dict[int, Any], status: int = HTTPStatus.OK, **others: Any
) -> Callable[[Endpoint], Endpoint]:
    """Describe an operation in the schema.

    Args:
        summary: Its heading.
        tag: Tag that groups it in the schema.
        answer: Its successful response, or all its responses; by default, the view's serializer.
        errors: Responses that only some operations have: see `ipate_web.api.problems.CONFLICT`.
        status: Status of the successful response.
        others: Further arguments of ``extend_schema``.
    """
    if answer is not empty:
        responses = answer if isinstance(answer, dict) else {status: answer}
        others["responses"] = {**responses, **{code: error for each in errors for code, error in each.items()}}
    return extend_schema(summary=summary, tags=[tag], **others)


def body_of(request: Request, kind: type[serializers.Serializer], /, **context: Any) -> dict[str, Any]:
    """Return the validated body of a request.

    Raises:
        ValidationError: part of it is missing or invalid.
    """
    sent = kind(data=request.data, context=context)
    sent.is_valid(raise_exception=True)
    return sent.validated_data


def request_user(request: Request) -> User:
    """Return the user of the request; every endpoint requires a session or a token."""
    return cast(User, request.user)


def permission_check(user: Any, permission: str, obj: Model) -> None:
    """Check a permission on an object that the user may see.

    Raises:
        PermissionDenied: the user's role in the study does not include the permission.
    """
    if not user.has_perm(permission, obj):
        raise exceptions.PermissionDenied(
            f"Your role in this study does not include “{permission}”. Ask the study's operator."
        )


def visible_study(user: Any, slug: str, permission: str = "") -> Study:
    """Return a study whose runs ``user`` may see, after checking a given permission in it.

    Raises:
        NotFound: there is no study with this name, or the user may not see it.
        PermissionDenied: the user's role in the study does not include the permission.
    """
    study = studies_with_permission(user, "training.view_run").filter(slug=slug).first()
    if study is None:
        raise exceptions.NotFound("There is no such study, or none that you may see. GET /api/v1/studies lists yours.")
    if permission:
        permission_check(user, permission, study)
    return study


class RootSerializer(serializers.Serializer):
    version = serializers.CharField(help_text="Version of iPATE that sent this response, such as 0.9.0.")
    documentation = serializers.CharField(help_text="Path of the page that documents every endpoint.")
    schema = serializers.CharField(help_text="Path of the OpenAPI document, which describes the same endpoints.")


class Root(ApiView):
    """Entry point of the API."""

    @operation("Root", "root", RootSerializer, operation_id="root")
    def get(self, request: Request) -> Response:
        """Return the software's version and the paths of the API's documentation."""
        paths = {"documentation": reverse("api-docs"), "schema": reverse("schema")}
        return Response(RootSerializer({"version": __version__, **paths}).data)


class NotFoundView(ApiView):
    """Problem document for every URL without an endpoint."""

    schema = None

    def _query_checked(self, request: Request) -> dict[str, Any]:
        raise exceptions.NotFound("This address does not exist. GET /api/docs lists all addresses.")


@csrf_exempt
def outside(request: HttpRequest, path: str = "") -> HttpResponse:
    """Respond to requests, with any method, for URLs under ``/api`` that do not belong to a version of the API."""
    root = reverse("api:root")
    if f"{request.path_info}/" == root:  # 308 keeps the method and body, unlike 301
        return HttpResponse(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": root}, content_type="text/plain")
    message = f"There is no API at this address. Version 1 is at {root}; GET /api/docs lists all addresses."
    return problem(KINDS["not-found"], message)
