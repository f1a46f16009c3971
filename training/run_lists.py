"""Lists of runs as pages and API give them: searched, filtered, sorted."""

from datetime import date

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Lower
from django.utils.translation import gettext_lazy as _

from training.models import Run

NEWEST = "-proposed"
SORTS = {
    NEWEST: _("newest first"),
    "proposed": _("oldest first"),
    "title": _("title"),
    "-labels": _("most labels first"),
    "-accuracy": _("most accurate first"),
}
"""Orders of a list with their names. None is by times of work, which may depend on private records."""
SEARCH_LENGTH = 200

_ORDERS = {
    NEWEST: F("created_at").desc(),
    "proposed": F("created_at").asc(),
    "title": Lower("title").asc(),
    "-labels": F("labels").desc(),
    "-accuracy": F("student__accuracy").desc(nulls_last=True),
}


def runs_filter(
    runs: QuerySet[Run],
    *,
    study: str = "",
    search: str = "",
    status: str = "",
    method: str = "",
    variant: str = "",
    proposer: str = "",
    since: date | None = None,
    until: date | None = None,
    sort: str = NEWEST,
) -> QuerySet[Run]:
    """Those of some runs that fit everything that is given, with what a list shows of them.

    Args:
        runs: Those that the reader may see.
        study: Short name of a study.
        search: Words of the title or the purpose; a run has to have all of them.
        status: A `Run.Status`.
        method: A `Run.Method`.
        variant: A `Run.Variant`.
        proposer: Name of the user who proposed it.
        since: First day of the proposal.
        until: Last day of the proposal.
        sort: One of `SORTS`; runs alike in it come newest first.
    """
    exact = {
        "study__slug": study,
        "status": status,
        "method": method,
        "variant": variant,
        "created_by__username": proposer,
        "created_at__date__gte": since,
        "created_at__date__lte": until,
    }
    condition = Q(**{name: value for name, value in exact.items() if value})
    for word in search.split():
        condition &= Q(title__icontains=word) | Q(purpose__icontains=word)
    rows = runs.filter(condition).select_related("created_by", "student").defer("student__card", "student__reference")
    # Of a model that learned another outcome than classes: the first of its measures, in place of an accuracy.
    rows = rows.annotate(measure=F("student__card__evaluation__measures__0"), evaluation=F("student__card__evaluation"))
    return rows.order_by(_ORDERS[sort], "-created_at", "pk")


def runs_in_table(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of `runs_filter` with the columns of templates/staff/runs/table.html alone: plans are long."""
    names = ("title", "status", "rehearsal", "method", "variant", "labels", "created_at")
    people = ("created_by", "created_by__username")
    return runs.only(*names, "study", "alliance", *people, "student", "student__accuracy", "student__withdrawn_at")


def proposers_of(runs: QuerySet[Run]) -> list[str]:
    """Names of the users who proposed some of these runs."""
    names = runs.exclude(created_by=None).order_by("created_by__username")
    return list(names.values_list("created_by__username", flat=True).distinct())
