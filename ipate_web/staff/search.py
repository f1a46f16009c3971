"""Search for staff across everything they may open: studies, pages, runs, models, datasets, alliances, people by code.

The search words may be a pseudonym, so they are sent in the body of a request and do not appear in URLs or logs.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import get_language, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from common.requests import SignedInRequest
from consent.models import Study
from consent.people.pseudonyms import holder_named
from consent.permissions import permissions_anywhere, studies_with_permission, study_permissions
from consent.wording.facts import study_text
from ipate_web.staff.pages import groups_of
from training.models import Alliance, Dataset, Run

MOST = 6
"""Largest number of results shown for each kind."""
LONGEST = 200
"""Maximum length of the search words."""


@dataclass(frozen=True)
class Hit:
    """Page that was found, and the study that it is about."""

    text: str | Promise
    url: str
    where: str = ""


@dataclass(frozen=True)
class Group:
    """Results of one kind, and whether there are more."""

    name: str | Promise
    hits: list[Hit]
    has_more: bool = False


def _any_word(words: str, *fields: str) -> Q:
    """Return the condition that each word is contained in one of the fields."""
    condition = Q()
    for word in words.split():
        condition &= Q.create([(f"{field}__icontains", word) for field in fields], connector=Q.OR)
    return condition


def _title(study: Study) -> str:
    """Return a study's title in the reader's language."""
    return study_text(study, "title").text


def _known_id(words: str) -> UUID | None:
    try:
        return UUID(words)
    except ValueError:
        return None


def _studies(words: str, user: object) -> Iterator[Hit]:
    titles = ("title", f"translations__{(get_language() or settings.LANGUAGE_CODE).split('-')[0]}__title")
    for study in studies_with_permission(user, "training.view_run").filter(_any_word(words, "slug", *titles)):
        yield Hit(_title(study), reverse("staff:study", args=[study.slug]))


def _pages(words: str, study: Study | None, can: Collection[str]) -> Iterator[Hit]:
    if study is None:
        return
    for group in groups_of(study, can, ""):
        for section in group.sections:
            if words.casefold() in str(section.text).casefold():
                yield Hit(section.text, section.url, _title(study))


def _of_studies(rows: QuerySet, user: object, permission: str, condition: Q) -> QuerySet:
    rows = rows.filter(condition, study__in=studies_with_permission(user, permission)).select_related("study")
    return rows.order_by("-pk")


def _runs(words: str, user: object) -> Iterator[Hit]:
    found = _of_studies(
        Run.objects.all(),
        user,
        "training.view_run",
        Q(pk=_known_id(words)) if _known_id(words) else _any_word(words, "title", "purpose"),
    )
    for run in found.order_by("-created_at").only("title", "study__title", "study__translations", "study__slug"):
        yield Hit(run.title, run.get_absolute_url(), _title(run.study))


def _models(words: str, user: object) -> Iterator[Hit]:
    condition = Q(pk=_known_id(words)) if _known_id(words) else _any_word(words, "title", "student__digest")
    published = Run.objects.filter(student__isnull=False, student__withdrawn_at=None)
    for run in _of_studies(published, user, "training.view_run", condition).order_by("-created_at"):
        yield Hit(run.title, reverse("staff:model", args=[run.study.slug, run.pk]), _title(run.study))


def _datasets(words: str, user: object) -> Iterator[Hit]:
    for row in _of_studies(Dataset.objects.all(), user, "consent.view_dashboard", _any_word(words, "name")):
        yield Hit(row.name, reverse("staff:dataset", args=[row.study.slug, row.pk]), _title(row.study))


def _alliances(words: str, user: object) -> Iterator[Hit]:
    for row in _of_studies(Alliance.objects.all(), user, "consent.view_dashboard", _any_word(words, "name")):
        yield Hit(row.name, reverse("staff:alliance", args=[row.study.slug, row.pk]), _title(row.study))


def _people(words: str, user: object) -> Iterator[Hit]:
    """Yield the person with exactly this code, in each study whose people the user may invite."""
    for study in studies_with_permission(user, "consent.invite_holders").filter(rehearsal=False):
        try:
            holder = holder_named(study, words)
        except ValidationError:
            continue
        yield Hit(str(holder), reverse("staff:person", args=[study.slug, holder.public_id]), _title(study))


_KINDS: tuple[tuple[str | Promise, Callable[[str, object], Iterator[Hit]]], ...] = (
    (_("Studies"), _studies),
    (_("Runs"), _runs),
    (_("Models"), _models),
    (_("Datasets"), _datasets),
    (_("Alliances"), _alliances),
    (_("People"), _people),
)


def found(words: str, user: object, study: Study | None = None, can: Collection[str] = ()) -> list[Group]:
    """Return the items that contain ``words`` and that ``user`` may open, by kind; pages are those of ``study``."""
    kinds: list[tuple[str | Promise, Iterator[Hit]]] = [
        (pgettext_lazy("of a study", "Pages"), _pages(words, study, can)),
        *((name, of_kind(words, user)) for name, of_kind in _KINDS),
    ]
    groups = []
    for name, hits in kinds:
        first = [hit for _place, hit in zip(range(MOST + 1), hits, strict=False)]
        if first:
            groups.append(Group(name, first[:MOST], len(first) > MOST))
    return groups


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def search(request: SignedInRequest) -> HttpResponse:
    """Show the results, as a page or, for the script of the search field, as part of a page."""
    if not permissions_anywhere(request.user):
        raise PermissionDenied
    words = " ".join(request.POST.get("words", "").replace("\0", "").split())[:LONGEST]
    study = Study.objects.filter(slug=request.POST.get("study", "")).first()
    can = study_permissions(request.user, study) if study else frozenset()
    context = {"words": words, "groups": found(words, request.user, study if can else None, can) if words else []}
    part = request.POST.get("part") == "1"
    return render(request, "staff/found.html" if part else "staff/search.html", context)
