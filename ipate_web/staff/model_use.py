"""Page of a published model: its description, a trial with one row, programs that use it, and downloads."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework.throttling import ScopedRateThrottle

from common.requests import SignedInRequest
from common.templatetags.moments import moment
from consent.models import Study
from ipate_web.lists import Column, Listing, Reader
from ipate_web.staff.charts import evaluation_charts
from ipate_web.staff.ledger import actor
from ipate_web.staff.pages import render_page, study_form
from learning.formats import DataError, DataErrors
from training.errors import translated
from training.models import Run, StudentModel
from training.selectors import run_versions, runs_visible_to
from training.services.downloads import model_downloads, predictions_record
from training.services.students import student_predict

#: Largest number of classes of a prediction shown on the page, likeliest first.
_MOST_CLASSES = 10

DOWNLOADS = Listing(
    columns=(
        Column("who", gettext_lazy("Person"), lambda release, reader: actor(release, reader), is_head=True),
        Column("what", gettext_lazy("Item"), lambda release, _reader: _(release.content["what"])),
        Column("when", gettext_lazy("When"), lambda release, _reader: moment(release.recorded_at)),
    ),
    ties=("-sequence",),
    prefetched=("recorded_by",),
    size=20,
)


class RowForm(forms.Form):
    """Form for one row of a schema, with a field for each column that the model uses, or for an image's pixels."""

    def __init__(self, data: Any = None, *, schema: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.columns = [each for each in schema.get("columns", []) if each.get("role") in ("feature", "text")]
        self.example: Any = {each["name"]: _example(each) for each in self.columns}
        for place, column in enumerate(self.columns):
            self.fields[f"column-{place}"] = _field(column, self.example[column["name"]])
        if schema["kind"] == "image":
            pixel: Any = 0.0 if schema["channels"] == 1 else [0.0] * schema["channels"]
            self.example = [[pixel] * schema["width"]] * schema["height"]
            self.fields["pixels"] = forms.CharField(
                label=gettext_lazy("Pixels"),
                widget=forms.Textarea(attrs={"rows": 5, "class": "code", "spellcheck": "false"}),
                initial=json.dumps(self.example),
                help_text=gettext_lazy("As JSON: a list of rows with numbers from 0 to 1."),
            )

    def clean_pixels(self) -> Any:
        try:
            return json.loads(self.cleaned_data["pixels"])
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_("This is not valid JSON.")) from error

    @property
    def row(self) -> Any:
        """Return the row as programs send it; the form must be valid."""
        if "pixels" in self.fields:
            return self.cleaned_data["pixels"]
        values = (self.cleaned_data[f"column-{place}"] for place in range(len(self.columns)))
        return {column["name"]: _value(column, text) for column, text in zip(self.columns, values, strict=True)}

    def refuse(self, error: DataError) -> None:
        """Show the errors in the row next to their fields."""
        names = {column["name"]: f"column-{place}" for place, column in enumerate(self.columns)}
        for fault in error.report.faults if isinstance(error, DataErrors) else [error]:
            text = f"{translated(fault.problem)} {translated(fault.remedy)}"
            self.add_error(names.get(fault.column or "", "pixels" if "pixels" in self.fields else None), text)


def _is_number(column: Mapping[str, Any]) -> bool:
    return column.get("type") in ("numeric", "date")


def _example(column: Mapping[str, Any]) -> Any:
    """Return a value that a column allows."""
    if _is_number(column):
        low, high = column["minimum"], column["maximum"]
        middle = (low + high) / 2
        return int(middle) if float(low).is_integer() and float(high).is_integer() else middle
    return next(iter(column.get("values", [])), "")


def _field(column: Mapping[str, Any], example: Any) -> forms.Field:
    shared: dict[str, Any] = {"label": column["name"], "required": False, "initial": example}
    if _is_number(column):
        ends = {"low": f"{column['minimum']:g}", "high": f"{column['maximum']:g}"}
        return forms.CharField(
            widget=forms.TextInput(attrs={"inputmode": "decimal"}),
            help_text=_("A number from %(low)s to %(high)s.") % ends,
            strip=False,
            **shared,
        )
    if column.get("values"):
        known = dict.fromkeys([*column["values"], *column.get("missing", [])])
        return forms.ChoiceField(choices=[(value, value or _("(empty)")) for value in known], **shared)
    widget = forms.Textarea(attrs={"rows": 3}) if column["role"] == "text" else forms.TextInput()
    return forms.CharField(widget=widget, strip=False, **shared)


def _value(column: Mapping[str, Any], text: str) -> Any:
    """Return a value as programs send it. A value that is not a number stays a string, for the schema to check."""
    if _is_number(column):
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


@dataclass(frozen=True)
class Prediction:
    """Response of a model for one row: answer, likeliest classes or named values, and columns outside the schema."""

    answer: Any
    values: list[tuple[str, float]]
    are_probabilities: bool
    outside: list[str]


def _prediction(found: Mapping[str, Any]) -> Prediction:
    are_probabilities = "probabilities" in found
    names, values = ("classes", "probabilities") if are_probabilities else ("columns", "values")
    pairs: Any = list(zip(found[names], found[values][0], strict=True))
    if are_probabilities:
        pairs = sorted(pairs, key=lambda pair: -pair[1])[:_MOST_CLASSES]
    answer = found["predictions"][0]
    answer = ", ".join(answer) if isinstance(answer, list) else answer
    return Prediction(answer, pairs, are_probabilities, found["outside"][0])


def snippets(site: str, run: Run, row: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, language and text of each example program that queries the model of ``run`` with ``row``."""
    address = f"{site}{reverse('api:model-predict', args=[run.pk])}"
    body = shlex.quote(json.dumps({"rows": [row]}, ensure_ascii=False))
    yield (
        "curl",
        "sh",
        f'curl -H "Authorization: Bearer $IPATE_TOKEN" -H "Content-Type: application/json" \\\n'
        f"  -d {body} \\\n  {address}",
    )
    yield (
        "Python",
        "python",
        f"from ipate_client import Site\n\n"
        f'model = Site("{site}").model("{run.pk}")\n'
        f"print(model.predict([{row!r}]).frame())",
    )


def _may_ask(request: SignedInRequest) -> bool:
    """Return whether the user may request another prediction; pages and the API share the API's limit."""
    view = cast(Any, SimpleNamespace(throttle_scope="predict"))
    return ScopedRateThrottle().allow_request(cast(Any, request), view)


@study_form("training.view_run")
def model(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show a published model. Users who may use it can try one row."""
    run = get_object_or_404(runs_visible_to(request.user).select_related("student"), study=study, pk=pk)
    if run.student is None:
        raise Http404
    student: StudentModel = run.student
    may_use = "training.use_student" in request.can
    if request.method == "POST" and not may_use:
        raise PermissionDenied
    form = RowForm(request.POST if request.method == "POST" else None, schema=run.schema)
    context: dict[str, Any] = {
        "run": run,
        "model": student,
        "form": form,
        "versions": run_versions(run),
        **evaluation_charts(student),
    }
    row = form.example
    if form.is_valid() and not student.is_withdrawn:
        row = form.row
        if not _may_ask(request):
            form.add_error(None, _("You have asked for too many predictions. Wait a minute and try again."))
            return render_page(request, study, "staff/models/model.html", context, status=429)
        try:
            context["prediction"] = _prediction(student_predict(student, [row]))
            predictions_record(model=student, records=1, acting_user=request.user)
        except DataError as error:
            form.refuse(error)
    site = request.build_absolute_uri("/").rstrip("/")
    downloads = model_downloads(student)
    if "accounting.view_ledger" not in request.can:
        downloads = downloads.filter(recorded_by=request.user.pk)
    context |= {
        "may_use": may_use and not student.is_withdrawn,
        "snippets": list(snippets(site, run, row)) if may_use else [],
        "downloads": DOWNLOADS.page(request, downloads, Reader(study, request.can)),
        "sees_all": "accounting.view_ledger" in request.can,
    }
    return render_page(request, study, "staff/models/model.html", context)
