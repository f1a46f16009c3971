"""The list of runs, on pages and in the API."""

from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Lower
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.templatetags.components import component_render
from ipate_web.lists import Column, Filter, Listing, Reader, day, newest_or_oldest, user_filter
from ipate_web.run_words import badges, majority_words, measure_words, method_words, right_ones
from training.methods import method_of
from training.models import Run


def _words(text: str) -> Q:
    condition = Q()
    for word in text.split():
        condition &= Q(title__icontains=word) | Q(purpose__icontains=word)
    return condition


def _link(run: Run, reader: Reader) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("staff:run", args=[reader.study.slug, run.pk]), run.title)


def _labels(run: Run, _reader: Reader) -> object:
    return run.labels if method_of(run).releases_labels else "–"


def _accuracy(run: Any, _reader: Reader) -> SafeString:
    if run.measure:
        words = format_html('<span class="small nowrap">{}</span>', measure_words(run.measure))
    elif run.student:
        right, majority = right_ones(run.student.accuracy, run.evaluation), majority_words(run.evaluation)
        words = format_html('{}<br><span class="soft small">{}</span>', right, majority)
    else:
        words = SafeString("–")
    if run.student and run.student.is_withdrawn:
        words += format_html("<br>{}", component_render("badge", text=_("model withdrawn"), kind="bad"))
    return words


def _accuracy_number(run: Any, _reader: Reader) -> object:
    return measure_words(run.measure) if run.measure else run.student.accuracy if run.student else ""


def _proposed(run: Run, _reader: Reader) -> SafeString:
    by = format_html('<br><span class="soft small">{}</span>', run.created_by) if run.created_by else ""
    return format_html("{}{}", day(run.created_at), by)


def _choose(run: Run, _reader: Reader) -> SafeString:
    label = _("Compare “%(title)s”") % {"title": run.title}
    return format_html('<input type="checkbox" name="run" value="{}" aria-label="{}">', run.pk, label)


COMPARE = Column("compare", gettext_lazy("Compare"), _choose, fields=("title",), is_silent=True)
"""Checkboxes for selecting runs to compare, for a page with more than one run."""

RUNS = Listing(
    columns=(
        Column(
            "title",
            gettext_lazy("Run"),
            _link,
            fields=("title",),
            orders={"title": (gettext_lazy("title"), Lower("title").asc())},
            is_head=True,
        ),
        Column(
            "status",
            gettext_lazy("Status"),
            lambda run, _reader: badges(run),
            fields=("status", "rehearsal", "method", "student", "message"),
        ),
        Column(
            "method",
            gettext_lazy("Method"),
            lambda run, _reader: method_words(run),
            fields=("method", "variant"),
            is_minor=True,
        ),
        Column(
            "labels",
            gettext_lazy("Labels"),
            _labels,
            fields=("labels", "method"),
            orders={"-labels": (gettext_lazy("most labels first"), F("labels").desc())},
            kind="number",
            is_minor=True,
        ),
        Column(
            "accuracy",
            gettext_lazy("Accuracy"),
            _accuracy,
            fields=("student__accuracy", "student__withdrawn_at"),
            # If a model's outcome is not classes, the first measure replaces the accuracy.
            values={
                "measure": F("student__card__evaluation__measures__0"),
                "evaluation": F("student__card__evaluation"),
            },
            orders={"-accuracy": (gettext_lazy("most accurate first"), F("student__accuracy").desc(nulls_last=True))},
            text=_accuracy_number,
            kind="number",
        ),
        Column(
            "proposed",
            gettext_lazy("Proposed"),
            _proposed,
            fields=("created_at", "created_by__username"),
            # Runs cannot be sorted by working time, which may depend on private records.
            orders=newest_or_oldest("proposed", "created_at"),
            kind="nowrap",
            is_minor=True,
        ),
    ),
    filters=(
        Filter("study", "study__slug", help="Slug of a study; list only its runs.", kind="slug"),
        Filter(
            "search",
            _words,
            gettext_lazy("Words in the title or purpose"),
            "Words to search for; all of them must occur in the title or the purpose.",
            longest=200,
        ),
        Filter("status", "status", gettext_lazy("Status"), choices=Run.Status.choices),
        Filter("method", "method", gettext_lazy("Method"), choices=Run.Method.choices),
        Filter("variant", "variant", choices=Run.Variant.choices),
        user_filter(
            "proposer",
            "created_by",
            gettext_lazy("Proposed by"),
            "Username; list only runs that this user proposed.",
        ),
        Filter(
            "since",
            "created_at__date__gte",
            gettext_lazy("Proposed since"),
            "List only runs proposed on or after this day.",
            kind="day",
        ),
        Filter(
            "until",
            "created_at__date__lte",
            gettext_lazy("Proposed up to"),
            "List only runs proposed on or before this day.",
            kind="day",
        ),
    ),
    ties=("-created_at", "pk"),
    default="-proposed",
    fields=("study", "alliance"),
    size=20,
)
