"""Pages for importing datasets: upload, schema, preview, and storing or dropping."""

import io
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST, require_safe

from common.reading import UnreadableError, document_parse
from common.requests import SignedInRequest
from common.spreadsheets import CsvWriter
from consent.models import Study
from ipate_web.staff.columns import AT_ONCE, ColumnFormSet, Columns, ColumnsFileForm, ManyColumnsForm, TargetForm
from ipate_web.staff.fields import LinesField
from ipate_web.staff.pages import attachment, faults_in, faults_show, render_page, study_form, study_page
from learning.formats import DataError, DataErrors, TabularSchema, schema_from_json
from learning.formats.values import DATE_ORDERS
from training.errors import translated
from training.models import Dataset, DatasetImport
from training.services.imports import (
    Upload,
    import_begin,
    import_confirm,
    import_declare,
    import_drop,
    import_facts,
    import_progress,
    import_report,
    import_revise,
)

#: Upload limit of the proxy in the documentation. The command has no such limit.
MOST_MB = 200
_DRAFT = "draft"
_DELIMITERS = (
    (",", gettext_lazy("comma")),
    (";", gettext_lazy("semicolon")),
    ("\t", gettext_lazy("tab")),
    ("|", gettext_lazy("vertical bar")),
)
SHOWN = 50
"""Number of errors shown on the page; the file contains all of them."""


class _UploadField(forms.FileField):
    def clean(self, data: Any, initial: Any = None) -> Any:
        file: UploadedFile | None = super().clean(data, initial)
        if file and file.size and file.size > MOST_MB << 20:
            raise ValidationError(
                gettext_lazy(
                    "The file is larger than %(most)d MB. Use the command import_dataset, which has no such limit."
                )
                % {"most": MOST_MB}
            )
        return file


class UploadForm(forms.Form):
    """Form for a file, the name of the dataset, and the source of the schema."""

    file = _UploadField(
        label=gettext_lazy("File"),
        help_text=gettext_lazy(
            "A table (CSV, also as gzip or zip; Excel, Parquet, SPSS, Stata, SAS, ARFF), a zip file of images with a "
            "folder per class (PNG, JPEG, TIFF, DICOM), arrays (npz, mat, idx), FHIR (a bundle or NDJSON) or OMOP (a "
            "zip file of CSV files). Up to 200 MB. The file is stored privately for a day."
        ),
    )
    label_file = _UploadField(
        label=gettext_lazy("Label file"),
        required=False,
        help_text=gettext_lazy(
            "With an idx file, upload the file with its labels. With a zip file of images, upload a table with the "
            "columns file, class and holder, unless the folder names already give this information."
        ),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, help_text=gettext_lazy("Name of the dataset in the study.")
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"),
        choices=[
            (Dataset.Kind.PRIVATE.value, gettext_lazy("private: rows that belong to holders")),
            (Dataset.Kind.PUBLIC.value, gettext_lazy("public: points that runs query")),
            (Dataset.Kind.TEST.value, gettext_lazy("test: rows for evaluating the student")),
        ],
        help_text=gettext_lazy(
            "Public and test rows are not protected by noise, so they must be public or provided for this use."
        ),
    )
    schema_from = forms.ChoiceField(
        label=gettext_lazy("Schema"),
        help_text=gettext_lazy("The schema describes a row. All datasets of a run need the same schema."),
    )
    schema_file = forms.FileField(
        label=gettext_lazy("Schema file"),
        required=False,
        help_text=gettext_lazy("A JSON file, used instead of the choice above."),
    )
    holder_prefix = forms.CharField(
        label=gettext_lazy("One person per row"),
        required=False,
        max_length=100,
        help_text=gettext_lazy(
            "For private rows without a column of pseudonyms: enter a prefix such as P to create P-1, P-2 and so on."
        ),
    )
    with_labels = forms.BooleanField(
        label=gettext_lazy("Keep labels of public points"),
        required=False,
        help_text=gettext_lazy("Only for evaluation."),
    )
    provenance = forms.CharField(
        label=gettext_lazy("Source of the rows"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("In your own words. For public points, the model card shows this text."),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._schemas = {str(each.pk): each for each in study.datasets.order_by("-imported_at")}
        chosen = [(pk, gettext_lazy("same as “%(name)s”") % {"name": each.name}) for pk, each in self._schemas.items()]
        drafted = (_DRAFT, gettext_lazy("drafted from the file"))
        self.fields["schema_from"].choices = [*chosen, drafted]  # type: ignore[attr-defined]

    def clean_holder_prefix(self) -> str:
        prefix = self.cleaned_data["holder_prefix"].strip()
        if prefix and not prefix[0].isalnum():
            raise ValidationError(gettext_lazy("Start with a letter or a digit."))
        return prefix

    def clean_schema_file(self) -> dict[str, Any] | None:
        file = self.cleaned_data["schema_file"]
        return document_read(file.read()) if file else None

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data.get("holder_prefix") and data.get("kind") != Dataset.Kind.PRIVATE:
            self.add_error("holder_prefix", gettext_lazy("Only private rows belong to people. Leave this empty."))
        return data

    @property
    def is_declared(self) -> bool:
        """Return whether the schema is taken from an existing dataset of the study; the form must be valid."""
        return self.cleaned_data["schema_from"] in self._schemas and not self.cleaned_data["schema_file"]

    def upload(self) -> Upload:
        """Return the upload that the form describes; the form must be valid."""
        data = dict(self.cleaned_data)
        document, source = data.pop("schema_file"), data.pop("schema_from")
        data["schema"] = document or (self._schemas[source].schema if source in self._schemas else None)
        return Upload(**data)


def next_upload(study: Study) -> UploadForm:
    """Return the form for a study's next file. A missing kind and the latest public schema are preselected."""
    have = set(study.datasets.filter(removed_at=None).values_list("kind", flat=True))
    order = (Dataset.Kind.PUBLIC, Dataset.Kind.TEST, Dataset.Kind.PRIVATE)
    kind = next((each for each in order if each not in have), Dataset.Kind.PUBLIC)
    last = study.datasets.filter(removed_at=None).exclude(kind=Dataset.Kind.PRIVATE).order_by("imported_at").last()
    schema = _DRAFT if last is None or kind == Dataset.Kind.PRIVATE else str(last.pk)
    return UploadForm(study=study, initial={"kind": kind.value, "schema_from": schema})


def document_read(content: bytes | str) -> dict[str, Any]:
    """Return a schema read from JSON. Raises ValidationError, which lists all errors."""
    try:
        document = document_parse(content)
    except UnreadableError as error:
        raise ValidationError(gettext_lazy("This is not valid JSON (%(error)s).") % {"error": error}) from error
    if errors := document_faults(document):
        raise ValidationError([f"{column}: {text}" if column else text for column, text in errors])
    return document


def document_faults(document: Any) -> list[tuple[str, str]]:
    """Return the column (if any) and a sentence for every error in a schema."""
    try:
        schema_from_json(document)
    except DataError as error:
        faults = error.report.faults if isinstance(error, DataErrors) else [error]
        return [(fault.column or "", f"{translated(fault.problem)} {translated(fault.remedy)}") for fault in faults]
    return []


def _is_public(of: DatasetImport, document: Mapping[str, Any]) -> bool:
    """Return whether a schema reveals nothing beyond the schema of the study's latest public or test dataset."""
    public = of.study.datasets.filter(removed_at=None).exclude(kind=Dataset.Kind.PRIVATE).order_by("imported_at").last()
    if public is None:
        return False
    try:
        declared, known = schema_from_json(dict(document)), schema_from_json(public.schema)
    except DataError:
        return False
    if not (isinstance(declared, TabularSchema) and isinstance(known, TabularSchema)):
        return False
    columns, answers = {each.name: each for each in known.features}, (known.text, known.answers, known.outcome)
    return (declared.text, declared.answers, declared.outcome) == answers and all(
        columns.get(each.name) == each for each in declared.features
    )


class _SchemaForm(forms.Form):
    known = forms.BooleanField(
        label=gettext_lazy("Ranges, values and classes come from another source, not from these rows"),
        help_text=gettext_lazy(
            "The schema is public. Take possible values from a codebook, a form or a standard: values copied from "
            "private rows would reveal something about those people."
        ),
    )

    def __init__(self, *args: Any, of: DatasetImport, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not of.is_of_people or _is_public(of, of.schema):
            del self.fields["known"]

    def require_source(self) -> None:
        """Require a source for the ranges in a schema of people's rows."""
        self.fields["known"] = self.base_fields["known"]
        self.add_error("known", forms.Field.default_error_messages["required"])


class TableForm(_SchemaForm):
    """Form for the part of a table's schema that does not concern columns."""

    delimiter = forms.ChoiceField(label=gettext_lazy("Column separator"), choices=_DELIMITERS)
    decimal = forms.ChoiceField(
        label=gettext_lazy("Decimal mark"), choices=((".", gettext_lazy("point")), (",", gettext_lazy("comma")))
    )
    header = forms.BooleanField(label=gettext_lazy("The first row contains the column names"), required=False)
    comment = forms.CharField(
        label=gettext_lazy("Skip lines that start with"), required=False, max_length=10, widget=forms.TextInput
    )
    combined = forms.BooleanField(
        label=gettext_lazy("Combine all rows of a person into one"),
        required=False,
        help_text=gettext_lazy("Choose how to combine the values of each column. Missing values are ignored."),
    )
    by = forms.CharField(
        label=gettext_lazy("Column with dates or numbers for sorting a person's rows"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("If empty, the order in the file is used."),
    )
    by_written = forms.ChoiceField(
        label=gettext_lazy("Format of these dates"),
        required=False,
        choices=[(written, gettext_lazy(example)) for written, example in DATE_ORDERS.items()],
    )
    field_order = ("delimiter", "decimal", "header", "comment", "combined", "by", "by_written", "known")

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the form's values for a schema in JSON."""
        one = schema.get("one_record")
        rule = {} if one is None else {"combined": True, "by": one.get("by"), "by_written": one.get("written")}
        return {"delimiter": ",", "decimal": ".", "header": True, **schema, **rule}

    def document(self, columns: list[dict[str, Any]], rules: Mapping[str, str]) -> dict[str, Any]:
        """Return the schema as JSON, without the outcome to learn; the form must be valid."""
        data = self.cleaned_data
        options = {name: data[name] for name in ("delimiter", "decimal", "header", "comment")}
        one = {"by": data["by"], "written": data["by_written"] or "ymd", "rules": dict(rules)}
        return {"kind": "table", "columns": columns, **options} | ({"one_record": one} if data["combined"] else {})


class ImageForm(_SchemaForm):
    """Form for the schema of images."""

    height = forms.IntegerField(label=gettext_lazy("Height in pixels"), min_value=1)
    width = forms.IntegerField(label=gettext_lazy("Width in pixels"), min_value=1)
    channels = forms.IntegerField(
        label=gettext_lazy("Channels"), min_value=1, help_text=gettext_lazy("1: greyscale, 3: colour.")
    )
    fit = forms.ChoiceField(
        label=gettext_lazy("How to resize images"),
        required=False,
        choices=(
            ("pad", gettext_lazy("the whole image with black margins")),
            ("crop", gettext_lazy("the centre of the image")),
            ("stretch", gettext_lazy("the whole image, stretched")),
        ),
    )
    centre = forms.FloatField(
        label=gettext_lazy("Window centre"),
        required=False,
        help_text=gettext_lazy(
            "For DICOM files and 16-bit images: the range of visible values. Leave empty to use all possible values."
        ),
    )
    span = forms.FloatField(label=gettext_lazy("Window width"), required=False)
    classes = LinesField(
        label=gettext_lazy("Classes, one per line"),
        help_text=gettext_lazy("List them in the order of their numbers, starting with class 0."),
    )
    field_order = ("height", "width", "channels", "classes", "fit", "centre", "span", "known")

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if (data.get("centre") is None) != (data.get("span") is None):
            self.add_error("span", gettext_lazy("Enter both the centre and the width of the window, or neither."))
        return data

    def document(self) -> dict[str, Any]:
        """Return the schema as JSON; the form must be valid."""
        data = self.cleaned_data
        plain = {name: data[name] for name in ("height", "width", "channels", "classes")}
        fit = {} if data["fit"] in ("", "pad") else {"fit": data["fit"]}
        window = {} if data["centre"] is None else {"window": [data["centre"], data["span"]]}
        return {"kind": "image", **plain, **fit, **window}

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the form's values for a schema in JSON."""
        centre, span = schema.get("window") or (None, None)
        return {**schema, "centre": centre, "span": span, "classes": "\n".join(schema.get("classes", []))}


class SchemaForms:
    """Forms for declaring an import's schema: one for images, or one for each column on the current page.

    Attributes:
        first: Position of the first column on the page.
        count: Total number of columns.
    """

    def __init__(
        self, data: Mapping[str, Any] | None, of: DatasetImport, facts: Mapping[str, Any], first: int = 0
    ) -> None:
        schema, self.facts, self._of = of.schema, bool(facts), of
        self.columns: Any = None
        self.named = schema.get("header", True)
        self.target: Any = None
        self.form: Any
        self.count = len(schema.get("columns", []))
        self.first = first if 0 <= first < self.count else 0
        if schema.get("kind") == "image":
            self.form = ImageForm(data, of=of, initial=ImageForm.initial_of(schema))
        else:
            self.form = TableForm(data, of=of, initial=TableForm.initial_of(schema))
            self.target = TargetForm(data, initial=TargetForm.initial_of(schema))
            self._all = Columns(schema)
            initial = self._all.initial[self.first : self.first + AT_ONCE]
            self.columns = ColumnFormSet(data, initial=initial, prefix="columns")
            for form in self.columns:
                form.facts = facts.get(form.initial.get("name", ""), {})

    def document(self, *, sound: bool = True) -> dict[str, Any] | None:
        """Return the declared schema, or None if it is invalid; the forms then show the errors.

        Args:
            sound: Whether to check the schema as a whole in addition to each form.
        """
        if not sound and "known" in self.form.fields:
            self.form.fields["known"].required = False
        valid = [form is None or form.is_valid() for form in (self.form, self.target, self.columns)]
        if not all(valid):
            return None
        if self.columns is None:
            document = self.form.document()
        else:
            columns, rules = self._all.changed(dict(enumerate(self.columns, self.first)))
            document = self.form.document(columns, rules) | self.target.document(columns)
        if not sound:
            return document
        if self._of.is_of_people and "known" not in self.form.fields and not _is_public(self._of, document):
            self.form.require_source()
            return None
        by_name = {each.cleaned_data["name"]: each for each in self.columns or ()}
        faults = document_faults(document)
        for column, text in faults:
            form = by_name.get(column, self.target or self.form)
            form.add_error(None, f"{column}: {text}" if column and column not in by_name else text)
        return None if faults else document

    @property
    def pages(self) -> list[tuple[int, int, int]]:
        """Pages of columns: position, number of the first column, number of the last; empty if one page suffices."""
        starts = range(0, self.count, AT_ONCE) if self.count > AT_ONCE else ()
        return [(start, start + 1, min(start + AT_ONCE, self.count)) for start in starts]

    @property
    def following(self) -> int | None:
        """First position of the next page; None on the last page."""
        return self.first + AT_ONCE if self.first + AT_ONCE < self.count else None

    @property
    def errors(self) -> list[tuple[str, str]]:
        """All errors, each as its column or field and a sentence."""
        forms_of = [(each.initial.get("name", ""), each) for each in self.columns or ()]
        listed = []
        for name, form in [("", self.form), *([("", self.target)] if self.target else []), *forms_of]:
            for field, texts in form.errors.items():
                label = "" if field == "__all__" else str(form.fields[field].label)
                place = ", ".join(part for part in (name, label) if part)
                listed += [(place, str(message)) for message in texts]
        return listed


def _import_or_404(study: Study, pk: object) -> DatasetImport:
    return get_object_or_404(DatasetImport.objects.select_related("dataset"), study=study, pk=pk)


@study_form("training.import_dataset")
def import_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Upload a file of records."""
    is_sent = request.method == "POST"
    form = UploadForm(request.POST, request.FILES, study=study) if is_sent else next_upload(study)
    if form.is_valid():
        with faults_in(form):
            begun = import_begin(study=study, acting_user=request.user, upload=form.upload())
            if form.is_declared:
                import_declare(dataset_import=begun, schema=begun.schema, acting_user=request.user)
            return redirect("staff:import", study.slug, begun.pk)
    return render_page(request, study, "staff/datasets/import_new.html", {"form": form})


@study_form("training.import_dataset")
def import_page(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show the state of an import: the form for its schema, its progress, or the results of the check."""
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
    if row.state == DatasetImport.State.DONE:
        context["next"] = next_upload(study)
    return render_page(request, study, "staff/datasets/import.html", context, status=422 if is_sent else 200)


@study_form("training.import_dataset")
def import_columns(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Change many columns at once, selected by use and name, or with a file."""
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
                text = ngettext("%(count)d column changed.", "%(count)d columns changed.", len(changes))
                messages.success(request, text % {"count": len(changes)})
            return redirect("staff:import", study.slug, row.pk)
    context = {"import": row, "apply": apply, "file": file, "count": len(columns.initial)}
    status = 422 if apply.errors or file.errors else 200
    return render_page(request, study, "staff/datasets/import_many.html", context, status=status)


@require_safe
@study_page("training.import_dataset")
def import_columns_file(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download the columns of an import as CSV for editing."""
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
        "percent": round(100 * import_progress(row)),
    }


@require_safe
@study_page("training.import_dataset")
def import_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show progress. The page polls this while a worker is busy, then reloads."""
    row = _import_or_404(study, pk)
    response = render(request, "staff/datasets/import_live.html", {"study": study, **_context(row)})
    if row.state not in DatasetImport.BUSY:
        response["HX-Refresh"] = "true"
    return response


@require_POST
@study_page("training.import_dataset")
def import_store(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Import the checked file."""
    row = _import_or_404(study, pk)
    with faults_show(request):
        import_confirm(dataset_import=row, acting_user=request.user)
    return redirect("staff:import", study.slug, row.pk)


@study_form("training.import_dataset")
def import_dropped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Ask for confirmation, then drop an import."""
    row = _import_or_404(study, pk)
    if request.method == "POST":
        import_drop(dataset_import=row)
        messages.success(request, _("The import and the uploaded file have been deleted."))
        return redirect("staff:datasets", study.slug)
    return render_page(request, study, "staff/datasets/import_drop.html", {"import": row})


@require_safe
@study_page("training.import_dataset")
def import_faults(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download all errors in a file as CSV."""
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
