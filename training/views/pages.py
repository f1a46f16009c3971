"""What the pages of a study have in common: who may open them, and what surrounds them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from consent.models import Membership, Study
from consent.permissions import study_permissions
from ipate_web.requests import SignedInRequest

PAGE_SIZE = 50

#: The pages of a study: address, name, who sees the link.
_SECTIONS = (
    ("training:study", _("Overview"), "consent.view_dashboard"),
    ("training:recruitment", _("Recruitment"), "consent.view_recruitment"),
    ("training:runs", _("Runs"), "training.view_run"),
    ("training:datasets", _("Datasets"), "consent.view_dashboard"),
    ("training:policies", _("ε policy"), "consent.view_dashboard"),
    ("training:consent_forms", _("Consent form"), "consent.view_dashboard"),
    ("training:invitations", _("Invitations"), "consent.invite_holders"),
    ("training:ledger", _("Ledger"), "accounting.view_ledger"),
    ("training:members", _("People"), "consent.view_dashboard"),
)


@dataclass(frozen=True)
class Section:
    """A link between the pages of a study."""

    url: str
    text: str | Promise
    current: bool


def study_page(permission: str) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """A page of one study, for whoever has ``permission`` in it.

    To those who have no part in the study it does not exist; its members who lack the permission are told so.
    """

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @never_cache
        @login_required
        @wraps(view)
        def wrapped(request: SignedInRequest, slug: str, **kwargs: Any) -> HttpResponseBase:
            study = get_object_or_404(Study, slug=slug)
            if not request.user.has_perm(permission, study):
                if not Membership.objects.filter(study=study, user_id=request.user.pk).exists():
                    raise Http404
                raise PermissionDenied
            return view(request, study, **kwargs)

        return wrapped

    return decorate


def render_page(
    request: SignedInRequest, study: Study, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """Render a page of ``study``; templates find what the reader may do in ``can``."""
    can = study_permissions(request.user, study)
    sections = []
    for name, text, permission in _SECTIONS:
        if permission in can:
            url = reverse(name, args=[study.slug])
            # The overview's address is where all the others begin.
            is_current = request.path == url if name == "training:study" else request.path.startswith(url)
            sections.append(Section(url, text, is_current))
    return render(request, template, {"study": study, "can": can, "sections": sections, **context}, status=status)


def paginate(request: SignedInRequest, rows: QuerySet, size: int = PAGE_SIZE) -> Page:
    """The page of ``rows`` that the address asks for; the nearest there is where it asks for none that exists."""
    return Paginator(rows, size).get_page(request.GET.get("page"))
