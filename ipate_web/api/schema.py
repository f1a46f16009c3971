"""The OpenAPI document, rendered once in each process for each language and form, since that takes seconds."""

import hashlib
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.encoding import force_bytes
from django.utils.translation import get_language
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_rendered: dict[tuple[str | None, str], HttpResponse] = {}


class Schema(SpectacularAPIView):
    """The description of the API, the same for every user, with an ETag. It does not describe itself."""

    schema = None

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        renderer = request.accepted_renderer
        language = request.GET.get("lang")
        if language not in dict(settings.LANGUAGES):
            language = get_language()
        key = (language, renderer.media_type)
        if key not in _rendered:
            response = super().get(request, *args, **kwargs)
            content = force_bytes(renderer.render(response.data, renderer.media_type, {"response": response}))
            rendered = HttpResponse(content, content_type=f"{renderer.media_type}; charset=utf-8")
            rendered["Content-Disposition"] = response["Content-Disposition"]
            rendered["ETag"] = f'"{hashlib.sha256(rendered.content).hexdigest()[:32]}"'
            _rendered[key] = rendered
        known = _rendered[key]
        response = HttpResponse(known.content, headers=dict(known.items()))
        patch_vary_headers(response, ("Accept", "Accept-Language", "Cookie"))
        return get_conditional_response(request, etag=known["ETag"], response=response) or response
