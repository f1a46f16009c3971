"""Pages of one study: overview, changes, and closing."""

from collections.abc import Callable, Collection
from datetime import date
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from accounting.exports import budgets_csv
from accounting.group_budgets import head_counts
from accounting.shares import share_free
from common.requests import SignedInRequest
from common.templatetags.moments import moment
from consent import selectors
from consent.committee import conditions_in_force
from consent.forms import options
from consent.models import Level, SealedChange, Study
from consent.people.counts import holders_per_level
from consent.permissions import SEES_PEOPLE
from ipate_web.first_run import next_steps
from ipate_web.lists import (
    Column,
    DayField,
    Filter,
    Listing,
    Reader,
    day,
    day_filters,
    newest_or_oldest,
    piece,
    user_filter,
)
from ipate_web.run_list import RUNS
from ipate_web.staff.budgets import budget_overview
from ipate_web.staff.change_words import ListedChange, change_lines, changes_of, models_recorded
from ipate_web.staff.fields import ReasonForm
from ipate_web.staff.impact import impact_markdown, impact_pdf
from ipate_web.staff.pages import attachment, faults_in, render_page, study_form, study_page
from ipate_web.staff.students import MODELS
from ipate_web.waiting import Kind, waiting_in
from training.models import Run, StudentModel
from training.queue import runs_under_way
from training.selectors import run_totals
from training.selectors import study_budgets as budgets_of
from training.services.erasures import study_close
from training.services.publication import registered_models

LATEST_RUNS = 5


class ClosingForm(ReasonForm):
    """Form for closing a study: the reason, and the last day of its private records."""

    erase_after = DayField(label=gettext_lazy("Last day the private records are kept"))

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = gettext_lazy(
            "Data holders will read this. It is stored permanently with your name."
        )
        field = self.fields["erase_after"]
        if study.rehearsal:
            del self.fields["erase_after"]
        elif study.retention_until is not None:
            field.initial = study.retention_until
            field.widget.attrs["max"] = study.retention_until.isoformat()
            field.help_text = gettext_lazy(
                "Data holders were promised this day, so you can only choose an earlier one."
            )
        else:
            field.help_text = gettext_lazy(
                "The records will be erased on the following day. If you choose a day in the past, they will be "
                "erased immediately."
            )

    @property
    def last_day(self) -> date | None:
        """Return the chosen day; the form must be valid."""
        return self.cleaned_data.get("erase_after")


def _changed_at(each: ListedChange, _reader: Reader) -> object:
    # The exact time of a sealed change could identify a person.
    return moment(each.change.changed_at) if each.is_open else day(each.change.changed_at)


def _changed_row(each: ListedChange, _reader: Reader) -> SafeString:
    if each.is_open:
        return conditional_escape(_("%(what)s “%(row)s”") % {"what": each.what, "row": each.row})
    return format_html('{}<br><code class="small">{}</code>', each.what, each.row)


def _changed_how(each: ListedChange, _reader: Reader) -> str:
    change = each.change
    return _("added") if change.before is None else _("removed") if change.after is None else _("changed")


def _changed_values(each: ListedChange, _reader: Reader) -> str:
    shown = [value for value in each.values if value.before or value.after]
    words = [f"{value.field}: {' → '.join(text or '–' for text in value.texts)}" for value in shown]
    return "; ".join(words) or ", ".join(each.fields)


def _models(changes: QuerySet, _reader: Reader) -> list[tuple[str, str]]:
    return models_recorded(sealed=changes.model is SealedChange)


CHANGES = Listing(
    columns=(
        Column(
            "number",
            gettext_lazy("No."),
            lambda each, _reader: each.change.sequence,
            orders=newest_or_oldest("number", "sequence"),
            kind="number",
        ),
        Column("when", gettext_lazy("When"), _changed_at, is_minor=True),
        Column("what", gettext_lazy("What was changed"), _changed_row, is_head=True),
        Column("how", gettext_lazy("Change"), _changed_how),
        Column("values", gettext_lazy("Values"), piece("change_values"), text=_changed_values, kind="words below"),
        Column("by", gettext_lazy("By"), lambda each, _reader: each.by or "–", is_minor=True),
    ),
    filters=(
        Filter("model", "model", gettext_lazy("What was changed"), options=_models),
        user_filter("by", "changed_by", gettext_lazy("Changed by")),
        *day_filters("changed_at"),
    ),
    ties=(),
    default="-number",
    size=20,
    prepare=change_lines,
)


@require_safe
@study_page("consent.view_dashboard")
def study_impact(request: SignedInRequest, study: Study, kind: str) -> HttpResponse:
    """Return the summary for the data protection impact assessment as PDF or Markdown, except for a rehearsal."""
    makers: dict[str, tuple[Callable[[Study], str | bytes], str]] = {
        "pdf": (impact_pdf, "application/pdf"),
        "md": (impact_markdown, "text/markdown; charset=utf-8"),
    }
    if study.rehearsal or kind not in makers:
        raise Http404
    make, content_type = makers[kind]
    response = HttpResponse(make(study), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{study.slug}-impact.{kind}"'
    return response


@require_safe
@study_page("training.view_run")
def study(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show a study's overview: next steps, remaining budgets and runs; for researchers, usable models."""
    policy = selectors.policy_in_force(study)
    runs = run_totals(study)
    steps = []
    if not runs.finished:
        steps = next_steps(study, request.can, makes_accounts=request.user.has_perm("consent.manage_accounts"))
    mine, others = waiting_in(study, request.user, request.can)
    context: dict[str, Any] = {
        "tasks": [each for each in mine if not steps or each.kind != Kind.SETUP],
        "others": others,
        "under_way": runs_under_way(study),
        "steps": steps,
        "steps_done": sum(step.done for step in steps),
        "share_free": share_free(study),
        "datasets": study.datasets.filter(removed_at=None).only("study", "name", "kind", "rows"),
        "latest_runs": RUNS.table(RUNS.select(study.runs.all())[:LATEST_RUNS], Reader(study)),
        "runs": runs,
        "policy": policy,
    }
    if "consent.view_dashboard" not in request.can:
        return render_page(request, study, "staff/study/researcher.html", context | _usable(study, request.can))
    context |= {
        "conditions": conditions_in_force(study),
        "options": options(policy, study.delta)[:3] if policy else [],
        "consent_form": selectors.consent_form_in_force(study),
        "head_counts": head_counts(study),
        "budgets": None if study.rehearsal else budget_overview(study),
    }
    if SEES_PEOPLE in request.can and not study.rehearsal:
        context |= _taking_part(study)
    return render_page(request, study, "staff/study/study.html", context)


@require_safe
@study_page("consent.view_dashboard")
def study_budgets(request: SignedInRequest, study: Study) -> HttpResponse:
    """Return the live part of the overview: the used and remaining budget of each privacy group."""
    context = {
        "study": study,
        "can": request.can,
        "budgets": budget_overview(study),
        "under_way": runs_under_way(study),
    }
    return render(request, f"staff/budgets/{'home' if 'bars' in request.GET else 'live'}.html", context)


@require_safe
@study_page("consent.view_dashboard")
def study_budget_file(request: SignedInRequest, study: Study) -> HttpResponse:
    """Download the budgets of the overview as a file."""
    pieces = budgets_csv(budgets_of(study))
    return attachment("".join(pieces), f"{study.slug}-budget.csv", "text/csv; charset=utf-8")


def _usable(study: Study, can: Collection[str]) -> dict[str, Any]:
    """Return the context for researchers: promises, published models, and the newest comparable runs."""
    policy = selectors.policy_in_force(study)
    finished = study.runs.filter(status=Run.Status.FINISHED).order_by("-ended_at")
    models = registered_models(StudentModel.objects.filter(run__study=study)).select_related("run__study")
    return {
        "options": options(policy, study.delta)[:3] if policy else [],
        "models": MODELS.table(MODELS.select(models)[:LATEST_RUNS], Reader(study, can)),
        "comparable": list(finished.values_list("pk", flat=True)[:LATEST_RUNS]),
    }


def _taking_part(study: Study) -> dict[str, Any]:
    """Return exact numbers, only for people who handle consents, because the numbers must not influence runs."""
    counts = holders_per_level(study)
    taking_part = sum(counts[level] for level in Level.values)
    return {"taking_part": taking_part, "counts": counts, "levels": [(level.label, counts[level]) for level in Level]}


@study_form("consent.close_study")
def study_closing(request: SignedInRequest, study: Study) -> HttpResponse:
    """Explain the effects of closing a study, and close it."""
    if study.is_closed:
        messages.info(request, _("This study is already closed."))
        return redirect("staff:study", study.slug)
    form = ClosingForm(request.POST or None, study=study)
    if form.is_valid():
        with faults_in(form):
            study_close(
                study=study, reason=form.cleaned_data["reason"], erase_after=form.last_day, acting_user=request.user
            )
            messages.success(request, _("The study is closed."))
            return redirect("staff:study", study.slug)
    return render_page(request, study, "staff/study/close.html", {"form": form})


@require_safe
@study_page("consent.view_configurationchange")
def changes(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the changes with the values before and after. Auditors also see sealed changes."""
    sealed = "consent.view_sealedchange" in request.can and request.GET.get("record") == "sealed"
    found = CHANGES.page(request, changes_of(study, sealed=sealed), Reader(study, request.can))
    if file := found.file(f"{study.slug}-{'sealed-' if sealed else ''}changes"):
        return file
    context = {"list": found, "form": found.form, "sealed": sealed}
    return render_page(request, study, "staff/study/changes.html", context)
