"""Forms to upload a file of records, and to declare what it holds."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext_lazy as _

from common.reading import UnreadableError, document_parse
from consent.models import Study
from ipate_web.staff.fields import LinesField
from ipate_web.staff.forms.columns import AT_ONCE, ColumnFormSet, Columns
from ipate_web.staff.forms.targets import TargetForm
from learning.formats import DataError, DataErrors, schema_from_json
from learning.formats.values import DATE_ORDERS
from training.errors import translated
from training.models import Dataset, DatasetImport
from training.services.imports import Upload

#: As much as the proxy of the documents lets through; the command has no such limit.
MOST_MB = 200
_DRAFT = "draft"
_DELIMITERS = ((",", _("comma")), (";", _("semicolon")), ("\t", _("tab")), ("|", _("vertical bar")))


class _UploadField(forms.FileField):
    def clean(self, data: Any, initial: Any = None) -> Any:
        file: UploadedFile | None = super().clean(data, initial)
        if file and file.size and file.size > MOST_MB << 20:
            raise ValidationError(
                _("The file is larger than %(most)d MB. The command import_dataset has no such limit.")
                % {"most": MOST_MB}
            )
        return file


class UploadForm(forms.Form):
    """Form for a file, what the dataset is called, and where its schema comes from."""

    file = _UploadField(
        label=_("File"),
        help_text=_(
            "A table (CSV, plain, gzip or zip; Excel, Parquet, SPSS, Stata, SAS, ARFF), a zip file of images with a "
            "folder per class (PNG, JPEG, TIFF, DICOM), arrays (npz, mat, idx), FHIR (a bundle or NDJSON) or OMOP (a "
            "zip file of CSV files). Up to 200 MB. The file is stored privately for a day."
        ),
    )
    label_file = _UploadField(
        label=_("File of labels"),
        required=False,
        help_text=_(
            "For an idx file, the file with its labels. For a zip file of images, a table with the columns file, "
            "class and holder if the folders do not say this."
        ),
    )
    name = forms.CharField(label=_("Name"), max_length=100, help_text=_("Name of the dataset in the study."))
    kind = forms.ChoiceField(
        label=_("Kind"),
        choices=[
            (Dataset.Kind.PRIVATE.value, _("private: rows that belong to holders")),
            (Dataset.Kind.PUBLIC.value, _("public: points that runs ask about")),
            (Dataset.Kind.TEST.value, _("test: rows that evaluate the student")),
        ],
        help_text=_("Public and test rows are not protected by noise, so they must be public or given for this use."),
    )
    schema_from = forms.ChoiceField(
        label=_("Schema"), help_text=_("The schema describes a row. All datasets of a run need the same one.")
    )
    schema_file = forms.FileField(
        label=_("Schema as a file"), required=False, help_text=_("JSON, instead of the choice above.")
    )
    holder_prefix = forms.CharField(
        label=_("One person per row"),
        required=False,
        max_length=100,
        help_text=_("For private rows without a column of pseudonyms: a prefix such as P creates P-1, P-2 and so on."),
    )
    with_labels = forms.BooleanField(
        label=_("Keep labels of public points"), required=False, help_text=_("Only for evaluation.")
    )
    provenance = forms.CharField(
        label=_("Source of the rows"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("In your own words. For public points, the model card repeats this."),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._schemas = {str(each.pk): each for each in study.datasets.order_by("-imported_at")}
        chosen = [(pk, _("as “%(name)s”") % {"name": each.name}) for pk, each in self._schemas.items()]
        drafted = (_DRAFT, _("drafted from the file"))
        self.fields["schema_from"].choices = [*chosen, drafted]  # type: ignore[attr-defined]

    def clean_holder_prefix(self) -> str:
        prefix = self.cleaned_data["holder_prefix"].strip()
        if prefix and not prefix[0].isalnum():
            raise ValidationError(_("Start with a letter or a digit."))
        return prefix

    def clean_schema_file(self) -> dict[str, Any] | None:
        file = self.cleaned_data["schema_file"]
        return document_read(file.read()) if file else None

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data.get("holder_prefix") and data.get("kind") != Dataset.Kind.PRIVATE:
            self.add_error("holder_prefix", _("Only private rows belong to people. Leave this empty."))
        return data

    def upload(self) -> Upload:
        """What is uploaded; the form is valid."""
        data = dict(self.cleaned_data)
        document, source = data.pop("schema_file"), data.pop("schema_from")
        data["schema"] = document or (self._schemas[source].schema if source in self._schemas else None)
        return Upload(**data)


def document_read(content: bytes | str) -> dict[str, Any]:
    """A schema written as JSON. Raises ValidationError, with everything that is wrong."""
    try:
        document = document_parse(content)
    except UnreadableError as error:
        raise ValidationError(_("This is not valid JSON (%(error)s).") % {"error": error}) from error
    if errors := document_faults(document):
        raise ValidationError([f"{column}: {text}" if column else text for column, text in errors])
    return document


def document_faults(document: Any) -> list[tuple[str, str]]:
    """Column, if there is one, and sentence of everything that is wrong with a schema."""
    try:
        schema_from_json(document)
    except DataError as error:
        faults = error.report.faults if isinstance(error, DataErrors) else [error]
        return [(fault.column or "", f"{translated(fault.problem)} {translated(fault.remedy)}") for fault in faults]
    return []


class _SchemaForm(forms.Form):
    known = forms.BooleanField(
        label=_("Ranges, values and classes come from elsewhere, not from these rows"),
        help_text=_(
            "The schema is public. Take possible values from a codebook, a form or a standard: values copied from "
            "private rows would reveal something about those people."
        ),
    )

    def __init__(self, *args: Any, of: DatasetImport, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not of.is_of_people:
            del self.fields["known"]


class TableForm(_SchemaForm):
    """Form for what a schema of a table says besides its columns."""

    delimiter = forms.ChoiceField(label=_("Column separator"), choices=_DELIMITERS)
    decimal = forms.ChoiceField(label=_("Decimal mark"), choices=((".", _("point")), (",", _("comma"))))
    header = forms.BooleanField(label=_("The first row names the columns"), required=False)
    comment = forms.CharField(
        label=_("Skip lines that start with"), required=False, max_length=10, widget=forms.TextInput
    )
    combined = forms.BooleanField(
        label=_("Combine all rows of a person into one"),
        required=False,
        help_text=_("Choose how to combine the values of each column. Missing values are ignored."),
    )
    by = forms.CharField(
        label=_("Column with dates or numbers that sorts a person's rows"),
        required=False,
        max_length=200,
        help_text=_("If empty, the order in the file is used."),
    )
    by_written = forms.ChoiceField(
        label=_("Format of these dates"),
        required=False,
        choices=[(written, _(example)) for written, example in DATE_ORDERS.items()],
    )
    field_order = ("delimiter", "decimal", "header", "comment", "combined", "by", "by_written", "known")

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the form for a schema in JSON."""
        one = schema.get("one_record")
        rule = {} if one is None else {"combined": True, "by": one.get("by"), "by_written": one.get("written")}
        return {"delimiter": ",", "decimal": ".", "header": True, **schema, **rule}

    def document(self, columns: list[dict[str, Any]], rules: Mapping[str, str]) -> dict[str, Any]:
        """The schema as JSON, without what is learned; the form is valid."""
        data = self.cleaned_data
        options = {name: data[name] for name in ("delimiter", "decimal", "header", "comment")}
        one = {"by": data["by"], "written": data["by_written"] or "ymd", "rules": dict(rules)}
        return {"kind": "table", "columns": columns, **options} | ({"one_record": one} if data["combined"] else {})


class ImageForm(_SchemaForm):
    """Form for the schema of images."""

    height = forms.IntegerField(label=_("Height in pixels"), min_value=1)
    width = forms.IntegerField(label=_("Width in pixels"), min_value=1)
    channels = forms.IntegerField(label=_("Channels"), min_value=1, help_text=_("1: greyscale, 3: colour."))
    fit = forms.ChoiceField(
        label=_("How to resize images of other sizes"),
        required=False,
        choices=(
            ("pad", _("the whole image with black margins")),
            ("crop", _("the centre of the image")),
            ("stretch", _("the whole image, stretched")),
        ),
    )
    centre = forms.FloatField(
        label=_("Centre of the window"),
        required=False,
        help_text=_(
            "For DICOM files and 16-bit images: the range of visible values. Leave empty for all possible values."
        ),
    )
    span = forms.FloatField(label=_("Width of the window"), required=False)
    classes = LinesField(label=_("Classes, one a line"), help_text=_("In numerical order."))
    field_order = ("height", "width", "channels", "classes", "fit", "centre", "span", "known")

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if (data.get("centre") is None) != (data.get("span") is None):
            self.add_error("span", _("Enter both centre and width of the window, or neither."))
        return data

    def document(self) -> dict[str, Any]:
        """The schema as JSON; the form is valid."""
        data = self.cleaned_data
        plain = {name: data[name] for name in ("height", "width", "channels", "classes")}
        fit = {} if data["fit"] in ("", "pad") else {"fit": data["fit"]}
        window = {} if data["centre"] is None else {"window": [data["centre"], data["span"]]}
        return {"kind": "image", **plain, **fit, **window}

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the form for a schema in JSON."""
        centre, span = schema.get("window") or (None, None)
        return {**schema, "centre": centre, "span": span, "classes": "\n".join(schema.get("classes", []))}


class SchemaForms:
    """The forms in which the schema of an import is declared: for images, or for columns, as many as fit on a page.

    Attributes:
        first: Place of the first column on the page.
        count: Of all columns.
    """

    def __init__(
        self, data: Mapping[str, Any] | None, of: DatasetImport, facts: Mapping[str, Any], first: int = 0
    ) -> None:
        schema, self.facts = of.schema, bool(facts)
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
        """The schema that was declared; None, and the forms say why, where it is not.

        Args:
            sound: Whether it has to be sound, and not only what each form takes.
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
        by_name = {each.cleaned_data["name"]: each for each in self.columns or ()}
        faults = document_faults(document)
        for column, text in faults:
            form = by_name.get(column, self.target or self.form)
            form.add_error(None, f"{column}: {text}" if column and column not in by_name else text)
        return None if faults else document

    @property
    def pages(self) -> list[tuple[int, int, int]]:
        """Where each page of columns begins, with the numbers of its first and last column; none of a single page."""
        starts = range(0, self.count, AT_ONCE) if self.count > AT_ONCE else ()
        return [(start, start + 1, min(start + AT_ONCE, self.count)) for start in starts]

    @property
    def following(self) -> int | None:
        """Where the next page begins; None on the last."""
        return self.first + AT_ONCE if self.first + AT_ONCE < self.count else None

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Column or field, and sentence of all that is wrong."""
        forms_of = [(each.initial.get("name", ""), each) for each in self.columns or ()]
        listed = []
        for name, form in [("", self.form), *([("", self.target)] if self.target else []), *forms_of]:
            for field, messages in form.errors.items():
                label = "" if field == "__all__" else str(form.fields[field].label)
                place = ", ".join(part for part in (name, label) if part)
                listed += [(place, str(message)) for message in messages]
        return listed
