"""What all endpoints share: who may see what, and that nothing is kept on the way."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import Model
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from consent.models import Study
from consent.permissions import studies_with_permission


class ApiView(APIView):
    """An endpoint whose answers depend on who asks, so that no cache may keep them."""

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class Strict(serializers.Serializer):
    """Input that refuses what it does not know: a misspelt field must not be passed over."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            known = ", ".join(name for name, field in self.fields.items() if not field.read_only)
            raise serializers.ValidationError(dict.fromkeys(unknown, f"There is no such field. Use: {known}."))
        return super().to_internal_value(data)


def person(request: Request) -> User:
    """Who asks: every endpoint is for people who are signed in or send a token."""
    return cast(User, request.user)


def require(user: Any, permission: str, obj: Model) -> None:
    """For those who may see ``obj`` but not do everything with it."""
    if not user.has_perm(permission, obj):
        raise exceptions.PermissionDenied(
            f"Your role in this study does not include “{permission}”. Ask the study's operator."
        )


def visible_study(user: Any, slug: str) -> Study:
    """The study, if ``user`` may see its runs; for everyone else it does not exist."""
    study = studies_with_permission(user, "training.view_run").filter(slug=slug).first()
    if study is None:
        raise exceptions.NotFound("There is no such study, or none that you may see. GET /api/v1/studies lists yours.")
    return study


class NotFound(ApiView):
    """Whatever has no address here: also told as a problem document."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise exceptions.NotFound("There is no such address. GET /api/docs lists them all.")
