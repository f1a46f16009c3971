"""Forms to upload a file of records, and to declare what it holds."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext_lazy as _

from consent.models import Study
from learning.formats import DataError, DataErrors, schema_from_json
from training.models import Dataset, DatasetImport
from training.services.imports import translated

#: As much as the proxy of the documents lets through; the command has no such limit.
MOST_MB = 200
#: More columns than these are declared as JSON.
MOST_COLUMNS = 60
_DRAFT = "draft"
_DELIMITERS = ((",", _("comma")), (";", _("semicolon")), ("\t", _("tab")), ("|", _("vertical bar")))
#: What a line of missing values says for an empty cell.
_EMPTY = "(empty)"


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
        help_text=_("CSV (plain, gzip, zip), Parquet, npz, mat or idx, up to 200 MB. It is kept privately, for a day."),
    )
    label_file = _UploadField(
        label=_("File of labels"), required=False, help_text=_("Of an idx file of images, the file of its labels.")
    )
    name = forms.CharField(label=_("Name"), max_length=100, help_text=_("What the dataset is called in the study."))
    kind = forms.ChoiceField(
        label=_("Kind"),
        choices=[
            (Dataset.Kind.PRIVATE.value, _("private: rows that belong to holders")),
            (Dataset.Kind.PUBLIC.value, _("public: points that are put to the vote")),
            (Dataset.Kind.TEST.value, _("test: rows that evaluate the student")),
        ],
        help_text=_("No noise protects public and test rows: they must be public, or given for this use."),
    )
    schema_from = forms.ChoiceField(
        label=_("Schema"), help_text=_("It says what a row holds. All datasets of a run need the same one.")
    )
    schema_file = forms.FileField(
        label=_("Schema as a file"), required=False, help_text=_("JSON, in place of the choice above.")
    )
    holder_prefix = forms.CharField(
        label=_("One person for each row"),
        required=False,
        max_length=100,
        help_text=_("Of private rows without a column of pseudonyms: a prefix such as P makes P-1, P-2 and so on."),
    )
    with_labels = forms.BooleanField(
        label=_("Keep the labels of public points"), required=False, help_text=_("For evaluation alone.")
    )
    provenance = forms.CharField(
        label=_("Where the rows come from"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("In your words; of public points the model's card repeats it."),
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
            raise ValidationError(_("Begin with a letter or a digit."))
        return prefix

    def clean_schema_file(self) -> dict[str, Any] | None:
        file = self.cleaned_data["schema_file"]
        return document_read(file.read()) if file else None

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data.get("holder_prefix") and data.get("kind") != Dataset.Kind.PRIVATE:
            self.add_error("holder_prefix", _("Only private rows belong to anybody. Leave it empty."))
        return data

    def asked_for(self) -> dict[str, Any]:
        """Arguments of ``import_begin``; the form is valid."""
        data = dict(self.cleaned_data)
        document, source = data.pop("schema_file"), data.pop("schema_from")
        data["schema"] = document or (self._schemas[source].schema if source in self._schemas else None)
        return data


def document_read(content: bytes | str) -> dict[str, Any]:
    """A schema written as JSON. Raises ValidationError, with everything that is wrong."""
    try:
        document = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValidationError(_("This is no JSON (%(error)s).") % {"error": error}) from error
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


class _LinesField(forms.CharField):
    """Texts, one a line."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}), **kwargs)

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class ColumnForm(forms.Form):
    """Form for one column of a table."""

    name = forms.CharField(label=_("Name"), max_length=200)
    use = forms.ChoiceField(
        label=_("What it is"),
        choices=[
            ("holder", _("pseudonym of the holder")),
            ("label", _("class to learn")),
            ("numeric", _("number")),
            ("categorical", _("one of some values")),
            ("icd9", _("ICD-9 diagnosis")),
            ("ignore", _("not used")),
        ],
    )
    minimum = forms.FloatField(label=_("Smallest"), required=False)
    maximum = forms.FloatField(label=_("Largest"), required=False)
    values = _LinesField(label=_("Values, one a line"))
    spellings = _LinesField(label=_("Other spellings of classes, one a line"), help_text="J = yes")
    missing = _LinesField(
        label=_("Not known, one a line"),
        help_text=_("How the file writes it; (empty) is an empty cell."),
    )
    other = forms.BooleanField(label=_("Other values are allowed, and count as “other”"), required=False)

    def document(self) -> dict[str, Any]:
        """The column as JSON; the form is valid."""
        data, name = self.cleaned_data, self.cleaned_data["name"]
        missing = ["" if text == _EMPTY else text for text in data["missing"]]
        feature = {"name": name, "role": "feature", "type": data["use"], "missing": missing}
        match data["use"]:
            case "numeric":
                ends = {end: _whole(data[end]) for end in ("minimum", "maximum") if data[end] is not None}
                return feature | ends
            case "categorical":
                return feature | {"values": data["values"], "other": data["other"]}
            case "icd9":
                return feature
            case "label":
                pairs = [line.partition("=") for line in data["spellings"]]
                return {"name": name, "role": "label", "labels": {a.strip(): b.strip() for a, _sign, b in pairs}}
        return {"name": name, "role": data["use"]}

    @staticmethod
    def initial_of(column: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the form for a column in JSON."""
        spellings = [f"{written} = {meant}" for written, meant in column.get("labels", {}).items()]
        return {
            "name": column["name"],
            "use": column.get("type") or column["role"],
            "minimum": column.get("minimum"),
            "maximum": column.get("maximum"),
            "values": "\n".join(column.get("values", [])),
            "spellings": "\n".join(spellings),
            "missing": "\n".join(text or _EMPTY for text in column.get("missing", [])),
            "other": column.get("other", False),
        }


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() else number


ColumnFormSet = forms.formset_factory(ColumnForm, extra=0, max_num=MOST_COLUMNS, absolute_max=MOST_COLUMNS)


class _SchemaForm(forms.Form):
    known = forms.BooleanField(
        label=_("Ranges, values and classes are known from elsewhere, and not taken from these rows"),
        help_text=_(
            "The schema is public. A codebook, a form or a standard says what can occur; what occurs in private rows "
            "would tell of the people whose they are."
        ),
    )

    def __init__(self, *args: Any, of: DatasetImport, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if of.kind != Dataset.Kind.PRIVATE:
            del self.fields["known"]


class TableForm(_SchemaForm):
    """Form for what a schema of a table says besides its columns."""

    classes = _LinesField(label=_("Classes, one a line"), help_text=_("In the order of their numbers."))
    delimiter = forms.ChoiceField(label=_("Columns are separated by"), choices=_DELIMITERS)
    decimal = forms.ChoiceField(label=_("Decimal mark"), choices=((".", _("point")), (",", _("comma"))))
    header = forms.BooleanField(label=_("The first row names the columns"), required=False)
    comment = forms.CharField(
        label=_("Lines that begin so are skipped"), required=False, max_length=10, widget=forms.TextInput
    )
    field_order = ("classes", "delimiter", "decimal", "header", "comment", "known")

    def document(self, columns: list[dict[str, Any]]) -> dict[str, Any]:
        """The schema as JSON; the form is valid."""
        options = {name: self.cleaned_data[name] for name in ("classes", "delimiter", "decimal", "header", "comment")}
        return {"kind": "table", "columns": columns, **options}


class ImageForm(_SchemaForm):
    """Form for the schema of images."""

    height = forms.IntegerField(label=_("Height in pixels"), min_value=1)
    width = forms.IntegerField(label=_("Width in pixels"), min_value=1)
    channels = forms.IntegerField(label=_("Channels"), min_value=1, help_text=_("1: shades of grey, 3: colours."))
    classes = _LinesField(label=_("Classes, one a line"), help_text=_("In the order of their numbers."))
    field_order = ("height", "width", "channels", "classes", "known")

    def document(self) -> dict[str, Any]:
        """The schema as JSON; the form is valid."""
        return {"kind": "image", **{n: self.cleaned_data[n] for n in ("height", "width", "channels", "classes")}}


class DocumentForm(_SchemaForm):
    """Form for a schema of many columns, or with another target than classes, as JSON."""

    text = forms.CharField(label=_("Schema as JSON"), widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false"}))
    field_order = ("text", "known")

    def clean_text(self) -> dict[str, Any]:
        return document_read(self.cleaned_data["text"])

    def document(self) -> dict[str, Any]:
        """The schema as JSON; the form is valid."""
        return self.cleaned_data["text"]


class SchemaForms:
    """The forms in which the schema of an import is declared: for images, for columns, or as JSON."""

    def __init__(self, data: Mapping[str, Any] | None, of: DatasetImport) -> None:
        schema = of.schema
        self.columns: Any = None
        self.form: Any
        lines = "\n".join(schema.get("classes", []))
        if schema.get("kind") == "image":
            self.form = ImageForm(data, of=of, initial={**schema, "classes": lines})
        elif len(schema.get("columns", [])) > MOST_COLUMNS or "target" in schema:
            text = json.dumps(schema, ensure_ascii=False, indent=1)
            self.form = DocumentForm(data, of=of, initial={"text": text})
        else:
            table = {"delimiter": ",", "decimal": ".", "header": True, **schema, "classes": lines}
            self.form = TableForm(data, of=of, initial=table)
            initial = [ColumnForm.initial_of(column) for column in schema.get("columns", [])]
            self.columns = ColumnFormSet(data, initial=initial, prefix="columns")

    def document(self) -> dict[str, Any] | None:
        """The schema that was declared; None, and the forms say why, where it is not sound."""
        valid = [self.form.is_valid(), self.columns is None or self.columns.is_valid()]
        if not all(valid):
            return None
        if self.columns is None:
            document = self.form.document()
        else:
            document = self.form.document([each.document() for each in self.columns])
        by_name = {each.cleaned_data["name"]: each for each in self.columns or ()}
        faults = document_faults(document)
        for column, text in faults:
            by_name.get(column, self.form).add_error(None, text)
        return None if faults else document

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Column or field, and sentence of all that is wrong."""
        found = [(each.initial.get("name", ""), each) for each in self.columns or ()]
        told = []
        for name, form in [("", self.form), *found]:
            for field, messages in form.errors.items():
                label = "" if field == "__all__" else str(form.fields[field].label)
                place = ", ".join(part for part in (name, label) if part)
                told += [(place, str(message)) for message in messages]
        return told
