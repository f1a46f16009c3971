"""Endpoints that sites of an alliance use at their hub. Sites sign their requests and have no account here.

docs/sites.md describes them. They are not meant for people or for other clients of the API.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from common.sentences import Sentence, gettext_noop
from ipate_web.api.problems import MEDIA_TYPE
from learning.sites.documents import Refused
from training.alliances.documents import documents_of, model_content
from training.alliances.exchange import (
    CONTENT,
    SIGNATURE,
    answer_keep,
    exchange_answer,
    joint_of,
    json_of,
    total_content,
)
from training.alliances.runs import points_content
from training.alliances.services import code_owner, site_register
from training.alliances.wire import request_check
from training.models import Alliance, AllianceSite, JointRun

View = Callable[..., HttpResponse]
BYTES = "application/octet-stream"


def _problem(status: HTTPStatus, detail: str) -> JsonResponse:
    document: dict[str, Any] = {"title": status.phrase, "status": status.value, "detail": detail}
    if isinstance(detail, Sentence):
        document["sentence"] = detail.to_json()  # so that the site can translate it
    return JsonResponse(document, status=status, content_type=MEDIA_TYPE)


def _of_alliance(method: str) -> Callable[[View], View]:
    """Decorator for views of an alliance whose hub is this installation. Refusals state their reason."""

    def decorate(view: View) -> View:
        @csrf_exempt  # no session and no cookie: requests are signed, or contain a code
        @never_cache
        @require_http_methods([method])
        @wraps(view)
        def wrapped(request: HttpRequest, key: UUID, **given: object) -> HttpResponse:
            alliance = Alliance.objects.filter(key=key, own_name="").select_related("study").first()
            if alliance is None:
                return _problem(HTTPStatus.NOT_FOUND, "This alliance does not exist here.")
            try:
                return view(request, alliance, **given)
            except RequestDataTooBig:
                return _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large for this hub.")
            except Refused as error:
                return _problem(HTTPStatus.CONFLICT, error.sentence)

        return wrapped

    return decorate


def _signed(view: View) -> View:
    """Decorator for views that only sites may request; they receive the site that signed the request."""

    @wraps(view)
    def wrapped(request: HttpRequest, alliance: Alliance, **given: object) -> HttpResponse:
        sites = {site.name: site for site in AllianceSite.objects.filter(alliance=alliance).exclude(public_key="")}

        def signer(keys: Mapping[str, str]) -> str:
            header, path = request.headers.get("Authorization", ""), request.get_full_path()
            return request_check(header, keys.get, request.method or "", path, request.body)

        try:
            name = signer({name: site.public_key for name, site in sites.items()})
        except Refused as error:
            return _problem(HTTPStatus.UNAUTHORIZED, _of_another_key(alliance, signer) or error.sentence)
        site = sites[name]
        site.alliance = alliance
        return view(request, site, **given)

    return wrapped


def _of_another_key(alliance: Alliance, signer: Callable[[Mapping[str, str]], str]) -> Sentence | None:
    """Return the message for a site that signs with an unconfirmed or replaced key, or None."""
    waiting = {alliance.renewal["site"]: alliance.renewal["key"]} if alliance.renewal else {}
    former = [(_REPLACED, each.document.sites) for each in documents_of(alliance)]
    for text, keys in [(_WAITS, waiting), *former]:
        with suppress(Refused):
            return Sentence(text, site=signer(keys))
    return None


_WAITS = gettext_noop(
    "The hub has not confirmed %(site)s's new key yet. Read the key's fingerprint out to an operator of the hub."
)
_REPLACED = gettext_noop(
    "The hub has replaced %(site)s's key and does not accept signatures made with the old one. Ask the people who "
    "run the hub."
)


@_of_alliance("POST")
def name(request: HttpRequest, alliance: Alliance) -> HttpResponse:
    """Return the name of the site that a code belongs to."""
    return JsonResponse({"site": code_owner(alliance, str(json_of(request.body).get("code"))).name})


@_of_alliance("POST")
def register(request: HttpRequest, alliance: Alliance) -> HttpResponse:
    """Store the public key that a site sends with its code, and return the common facts of the alliance."""
    document = json_of(request.body)
    site = site_register(alliance=alliance, code=str(document.get("code")), key=str(document.get("key")))
    return JsonResponse(
        {"site": site.name, "name": alliance.name, "colluding": alliance.colluding, "terms": alliance.terms}
    )


@_of_alliance("POST")
@_signed
def exchange(request: HttpRequest, site: AllianceSite) -> HttpResponse:
    """Store the site's message, and respond with the hub's message for the site."""
    return JsonResponse(exchange_answer(site, json_of(request.body)))


@_of_alliance("PUT")
@_signed
def answer(request: HttpRequest, site: AllianceSite, run: str, number: int) -> HttpResponse:
    """Store a site's answer."""
    try:
        content = bytes.fromhex(request.headers.get(CONTENT, "")).decode()
    except ValueError as error:
        raise Refused(gettext_noop("The answer's description is missing or cannot be read.")) from error
    answer_keep(site, _joint(site, run), number, content, request.headers.get(SIGNATURE, ""), request.body)
    return HttpResponse(status=HTTPStatus.NO_CONTENT)


@_of_alliance("GET")
@_signed
def total(_request: HttpRequest, site: AllianceSite, run: str, number: int) -> HttpResponse:
    """Return the numbers of a question's total."""
    return HttpResponse(total_content(_joint(site, run), number), content_type=BYTES)


@_of_alliance("GET")
@_signed
def points(_request: HttpRequest, site: AllianceSite) -> HttpResponse:
    """Return the public points of the alliance."""
    return HttpResponse(points_content(site.alliance), content_type=BYTES)


@_of_alliance("GET")
@_signed
def model(_request: HttpRequest, site: AllianceSite, run: str, file: str) -> HttpResponse:
    """Return a file of the model that the hub has trained."""
    return HttpResponse(model_content(_joint(site, run), file), content_type=BYTES)


def _joint(site: AllianceSite, number: str) -> JointRun:
    joint = joint_of(site.alliance, number)
    if joint is None or site.name not in joint.sites or not site.takes_part:
        raise Refused(gettext_noop("This run does not belong to the alliance, or this site does not take part in it."))
    return joint
