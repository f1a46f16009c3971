"""Pages on which a data steward imports a dataset: upload, schema, check, preview, import."""

import io
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from common.requests import SignedInRequest
from common.spreadsheets import CsvWriter
from consent.models import Study
from ipate_web.staff.forms.columns import Columns, ColumnsFileForm, ManyColumnsForm
from ipate_web.staff.forms.imports import SchemaForms, UploadForm
from ipate_web.staff.pages import attachment, faults_in, faults_show, render_page, study_form, study_page
from training.errors import translated
from training.models import DatasetImport
from training.services.imports import (
    import_begin,
    import_confirm,
    import_declare,
    import_drop,
    import_facts,
    import_report,
    import_revise,
)

SHOWN = 50
"""Faults on the page; the file holds more."""


def _import_or_404(study: Study, pk: object) -> DatasetImport:
    return get_object_or_404(DatasetImport.objects.select_related("dataset"), study=study, pk=pk)


@study_form("training.import_dataset")
def import_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Upload a file of records."""
    is_sent = request.method == "POST"
    form = UploadForm(request.POST if is_sent else None, request.FILES if is_sent else None, study=study)
    if form.is_valid():
        with faults_in(form):
            begun = import_begin(study=study, acting_user=request.user, upload=form.upload())
            return redirect("staff:import", study.slug, begun.pk)
    return render_page(request, study, "staff/datasets/import_new.html", {"form": form})


@study_form("training.import_dataset")
def import_page(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show what an import is at: the schema to be declared, progress, or what the check found."""
    row = _import_or_404(study, pk)
    is_sent, keeps = request.method == "POST", "keep" in request.POST
    first = request.GET.get("from", "")
    forms = SchemaForms(
        request.POST if is_sent else None, row, import_facts(row), int(first) if first.isdecimal() else 0
    )
    if is_sent and (document := forms.document(sound=not keeps)) is not None:
        page = reverse("staff:import", args=[study.slug, row.pk])
        with faults_show(request):
            if keeps:
                import_revise(dataset_import=row, schema=document, acting_user=request.user)
                return redirect(f"{page}?from={forms.first if forms.following is None else forms.following}")
            import_declare(dataset_import=row, schema=document, acting_user=request.user)
        return redirect(page)
    context = {**_context(row), "forms": forms, "errors": forms.errors if is_sent else []}
    return render_page(request, study, "staff/datasets/import.html", context, status=422 if is_sent else 200)


@study_form("training.import_dataset")
def import_columns(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Change many columns at once: by what they are and how they are called, or in a file."""
    row = _import_or_404(study, pk)
    columns = Columns(row.schema)
    sent = {name: request.POST for name in ("apply", "upload") if name in request.POST}
    apply = ManyColumnsForm(sent.get("apply"), columns=columns)
    file = ColumnsFileForm(sent.get("upload"), request.FILES if "upload" in sent else None, columns=columns)
    for form in (apply, file):
        if form.is_bound and form.is_valid():
            changes = form.changes()
            with faults_show(request):
                import_revise(dataset_import=row, schema=columns.schema_with(changes), acting_user=request.user)
                text = ngettext("%(count)d column is changed.", "%(count)d columns are changed.", len(changes))
                messages.success(request, text % {"count": len(changes)})
            return redirect("staff:import", study.slug, row.pk)
    context = {"import": row, "apply": apply, "file": file, "count": len(columns.initial)}
    status = 422 if apply.errors or file.errors else 200
    return render_page(request, study, "staff/datasets/import_many.html", context, status=status)


@require_safe
@study_page("training.import_dataset")
def import_columns_file(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download the columns of an import, to be edited, as CSV."""
    row = _import_or_404(study, pk)
    return attachment(Columns(row.schema).written(), f"{study.slug}-columns.csv", "text/csv; charset=utf-8")


def _context(row: DatasetImport) -> dict[str, Any]:
    report = import_report(row) if row.state == DatasetImport.State.CHECKED else {}
    faults = report.get("faults", [])
    notes = (
        [
            (column, *(report[what].get(column, 0) for what in ("clipped", "unknown", "missing")))
            for column in sorted({*report["clipped"], *report["unknown"], *report["missing"]})
        ]
        if report
        else []
    )
    return {
        "import": row,
        "report": report,
        "faults": faults[:SHOWN],
        "rest": (row.faults or 0) - len(faults[:SHOWN]),
        "notes": notes,
        "changed": any(clipped or unknown for _column, clipped, unknown, _missing in notes),
        "percent": round(100 * row.progress),
    }


@require_safe
@study_page("training.import_dataset")
def import_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Progress, as the page asks for it while a worker is at it; then the page is loaded anew."""
    row = _import_or_404(study, pk)
    response = render(request, "staff/datasets/import_live.html", {"study": study, **_context(row)})
    if row.state not in DatasetImport.BUSY:
        response["HX-Refresh"] = "true"
    return response


@require_POST
@study_page("training.import_dataset")
def import_store(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Import what was checked."""
    row = _import_or_404(study, pk)
    with faults_show(request):
        import_confirm(dataset_import=row, acting_user=request.user)
    return redirect("staff:import", study.slug, row.pk)


@study_form("training.import_dataset")
def import_dropped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Confirm and drop an import."""
    row = _import_or_404(study, pk)
    if request.method == "POST":
        import_drop(dataset_import=row)
        messages.success(request, _("The import is dropped, and what was uploaded is deleted."))
        return redirect("staff:datasets", study.slug)
    return render_page(request, study, "staff/datasets/import_drop.html", {"import": row})


@require_safe
@study_page("training.import_dataset")
def import_faults(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download everything that is wrong with a file, as CSV."""
    row = _import_or_404(study, pk)
    report = import_report(row)
    file = io.StringIO()
    writer = CsvWriter(file)
    writer.writerow([_("file"), _("row"), _("column"), _("problem"), _("what to do")])
    for fault in report.get("faults", []):
        texts = [translated(fault["problem"]), translated(fault["remedy"])]
        writer.writerow([fault["file"], fault["row"] or "", fault["column"], *texts])
    if (rest := report.get("count", 0) - len(report.get("faults", []))) > 0:
        writer.writerow(["", "", "", _("And %(rest)d more.") % {"rest": rest}, ""])
    return attachment("\ufeff" + file.getvalue(), f"{study.slug}-errors.csv", "text/csv; charset=utf-8")
