"""Schemas as JSON documents, for files and for the database, and the JSON Schema of such a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.codes import CODE_SYSTEMS
from learning.formats.columns import (
    CategoricalColumn,
    CodeColumn,
    DateColumn,
    Dated,
    DatedTargetColumn,
    HolderColumn,
    IgnoredColumn,
    LabelColumn,
    NumericColumn,
    TargetColumn,
    TextColumn,
)
from learning.formats.combining import OneRecord
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import Column, ImageSchema, Schema, TabularSchema
from learning.outcomes import Labels, Numbers, Outcome, Target, Times


def _number(value: object) -> object:
    """A number as it is written: a whole one stays whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "This is no number.")
    return value


Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]
Name = Annotated[str, Field(description="As in the header of the file.")]
Missing = Annotated[list[str], Field(description="How the file writes a value that is not known.")]
Classes = Annotated[list[str], Field(description="What is to be learned, in the order of their numbers from 0.")]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Declaration(_Document):
    """What is checked when it is built, part by part, so that all parts are checked."""

    def build(self) -> Any:
        raise NotImplementedError

    @model_validator(mode="after")
    def _builds(self) -> Self:
        self.build()
        return self


class _ColumnDocument(_Declaration):
    """A column."""

    name: Name


class HolderDocument(_ColumnDocument):
    """Pseudonym of the person to whom a record belongs."""

    role: Literal["holder"]

    def build(self) -> Column:
        return HolderColumn(self.name)


class IgnoredDocument(_ColumnDocument):
    """Column that is in the file and not used."""

    role: Literal["ignore"]

    def build(self) -> Column:
        return IgnoredColumn(self.name)


class LabelDocument(_ColumnDocument):
    """Class of a record."""

    role: Literal["label"]
    labels: dict[str, str] = Field(default={}, description="Spellings in the file, and the classes that they mean.")

    def build(self) -> Column:
        return LabelColumn(self.name, tuple(self.labels.items()))


class _DatedDocument(_ColumnDocument):
    """Column whose dates become the time until a reference, or since one."""

    until: str | None = Field(default=None, description="A date (2026-01-01), or a column of dates: such as an age.")
    since: str | None = Field(default=None, description="In place of until: the time from the reference to the date.")
    written: Literal["ymd", "dmy", "mdy"] = Field(default="ymd", description="Order of year, month and day.")

    def counted(self) -> tuple[str, bool]:
        """The reference, and whether time is counted from it."""
        if self.until and self.since:
            problem = _("The schema does not say what its dates are counted from.")
            raise DataError(problem, _("Give either until or since."), column=self.name)
        return self.since or self.until or "", bool(self.since)


class TargetColumnDocument(_DatedDocument):
    """A number to learn, where the schema declares a target; or dates of which the time between is learned."""

    role: Literal["target"]
    part: str = Field(description="Of numbers: value; of times: time or event; of labels: the name of one.")
    numbers: dict[str, Number] = Field(default={}, description="Spellings in the file, and the numbers that they mean.")
    unit: Literal["years", "months", "days"] = Field(default="days", description="Of the time between dates.")

    def build(self) -> Column:
        reference, since = self.counted()
        shared = self.name, self.part, tuple(self.numbers.items())
        if not reference:
            return TargetColumn(*shared)
        return DatedTargetColumn(*shared, reference, since, self.unit, self.written)


class NumericDocument(_ColumnDocument):
    """Number, clipped to the range and scaled to [0, 1]."""

    role: Literal["feature"]
    type: Literal["numeric"]
    minimum: Number
    maximum: Number
    missing: Missing = []

    def build(self) -> Column:
        return NumericColumn(self.name, self.minimum, self.maximum, tuple(self.missing))


class DateDocument(_DatedDocument):
    """Date, which becomes the time until a reference, or since one: a number, clipped and scaled like others."""

    role: Literal["feature"]
    type: Literal["date"]
    unit: Literal["years", "months", "days"] = "years"
    minimum: Number
    maximum: Number
    missing: Missing = []

    def build(self) -> Column:
        shared = self.name, self.minimum, self.maximum, tuple(self.missing)
        return DateColumn(*shared, *self.counted(), self.unit, self.written)


class CategoricalDocument(_ColumnDocument):
    """One of the declared values, one-hot encoded."""

    role: Literal["feature"]
    type: Literal["categorical"]
    values: list[str]
    missing: Missing = []
    other: bool = Field(default=False, description="Whether an undeclared value counts as “other”, or is an error.")

    def build(self) -> Column:
        return CategoricalColumn(self.name, tuple(self.values), tuple(self.missing), self.other)


class CodeDocument(_ColumnDocument):
    """Code of a classification, by its chapter or main group."""

    role: Literal["feature"]
    type: Literal["icd9", "icd10", "atc", "loinc"]
    missing: Missing = []
    several: bool = Field(default=False, description="Whether a value may name several codes, with semicolons between.")

    def build(self) -> Column:
        return CodeColumn(self.name, self.type, tuple(self.missing), self.several)


class TextDocument(_ColumnDocument):
    """Texts; they are all that is learned from."""

    role: Literal["text"]
    length: int = Field(default=2000, description="Bytes of UTF-8 that are kept of a text: the first ones.")

    def build(self) -> Column:
        return TextColumn(self.name, self.length)


FeatureDocument = Annotated[
    NumericDocument | DateDocument | CategoricalDocument | CodeDocument, Field(discriminator="type")
]
ColumnDocument = Annotated[
    HolderDocument | IgnoredDocument | LabelDocument | TargetColumnDocument | TextDocument | FeatureDocument,
    Field(discriminator="role"),
]
Unit = Annotated[str, Field(max_length=40, description="Of the number, for people.")]


class _TargetDocument(_Declaration):
    """What is to be learned in place of classes."""


class NumbersDocument(_TargetDocument):
    """A number in a range; one outside counts as the end of the range."""

    kind: Literal["numbers"]
    minimum: Number
    maximum: Number
    unit: Unit = ""

    def build(self) -> Target:
        return Numbers(self.minimum, self.maximum, self.unit)


class TimesDocument(_TargetDocument):
    """A time from 0 to an event, or until somebody was no longer followed."""

    kind: Literal["times"]
    ends: list[Number] = Field(description="Of the intervals that hazards are learned of; the last ends the time line.")
    unit: Unit = ""

    def build(self) -> Target:
        return Times(tuple(self.ends), self.unit)


class LabelsDocument(_TargetDocument):
    """Several labels of one record, each yes (1) or no (0)."""

    kind: Literal["labels"]
    names: list[str]

    def build(self) -> Target:
        return Labels(tuple(self.names))


TargetDocument = Annotated[NumbersDocument | TimesDocument | LabelsDocument, Field(discriminator="kind")]


class OneRecordDocument(_Document):
    """How the records of a holder become one."""

    by: str = Field(default="", description="Column of dates or numbers that orders them; empty: order of the file.")
    written: Literal["ymd", "dmy", "mdy"] = Field(default="ymd", description="How these dates are written.")
    rules: dict[str, Literal["last", "mean", "minimum", "maximum", "count", "any", "all"]] = Field(
        default={}, description="By column; the last value that is known where it is not named."
    )

    def one_record(self) -> OneRecord:
        return OneRecord(self.by, self.written, tuple(self.rules.items()))


class TableDocument(_Declaration):
    """Records of a table: CSV or Parquet, or arrays with one place for each number of an encoded record."""

    kind: Literal["table"]
    columns: list[ColumnDocument] = Field(description="In the order of the file, where it has no header.")
    classes: Classes
    target: TargetDocument | None = Field(
        default=None, description="What is to be learned in place of classes, of which there are none then."
    )
    delimiter: str = ","
    header: bool = True
    comment: str = Field(default="", description="Lines that begin so are skipped.")
    decimal: str = Field(default=".", description="Decimal mark: a point or a comma.")
    one_record: OneRecordDocument | None = Field(
        default=None, description="Where all records of a holder in a file become one."
    )

    def build(self) -> TabularSchema:
        columns = tuple(column.build() for column in self.columns)
        target = None if self.target is None else self.target.build()
        return TabularSchema(
            columns,
            tuple(self.classes),
            self.delimiter,
            self.header,
            self.comment,
            self.decimal,
            target,
            None if self.one_record is None else self.one_record.one_record(),
        )


class ImageDocument(_Declaration):
    """Images of one size: idx, mat or npz; or files of images, which are brought to that size."""

    kind: Literal["image"]
    height: int
    width: int
    channels: int = Field(description="1: greyscale, 3: colour.")
    classes: Classes
    fit: str = Field(
        default="pad",
        description="How files of images are brought to the size: pad (all of it, black around), crop (its middle) or "
        "stretch.",
    )
    window: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="Centre and width of the values of DICOM files, after rescaling, and of images of 16 bits.",
    )

    def build(self) -> ImageSchema:
        window = None if self.window is None else (self.window[0], self.window[1])
        return ImageSchema(self.height, self.width, self.channels, tuple(self.classes), self.fit, window)


SchemaDocument = Annotated[TableDocument | ImageDocument, Field(discriminator="kind")]
_DOCUMENT: TypeAdapter[TableDocument | ImageDocument] = TypeAdapter(SchemaDocument)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a document that declares what a dataset holds.

    >>> sorted(json_schema()["$defs"])[:2]
    ['CategoricalDocument', 'CodeDocument']
    """
    described = _DOCUMENT.json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Schema of a dataset", **described}


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Schema as a JSON-serialisable dict that ``schema_from_json`` reads back.

    >>> schema = ImageSchema(8, 8, 1, ("0", "1"))
    >>> schema_from_json(schema_to_json(schema)) == schema
    True
    """
    if isinstance(schema, ImageSchema):
        plain = {name: getattr(schema, name) for name in ("height", "width", "channels")}
        fit = {} if schema.fit == "pad" else {"fit": schema.fit}
        window = {} if schema.window is None else {"window": list(schema.window)}
        return {"kind": "image", **plain, "classes": list(schema.classes), **fit, **window}
    return {
        "kind": "table",
        **({} if schema.target is None else {"target": schema.target.to_json()}),
        "columns": [_column_to_json(column) for column in schema.columns],
        "classes": list(schema.classes),
        "delimiter": schema.delimiter,
        "header": schema.header,
        "comment": schema.comment,
        "decimal": schema.decimal,
        **({} if schema.one_record is None else {"one_record": _one_record_to_json(schema.one_record)}),
    }


def schema_from_json(document: Any) -> Schema:
    """Schema declared by a JSON document.

    Raises:
        DataError: names every error in the document.
    """
    try:
        return _DOCUMENT.validate_python(document).build()
    except ValidationError as error:
        report = Report()
        report.add(*(_fault(document, details) for details in error.errors(include_url=False)))
        report.raise_faults()
        raise


def outcome_of(document: Any) -> Outcome:
    """What a stored schema declares is to be learned."""
    return schema_from_json(document).outcome


def records_alike(document: Any, other: Any) -> bool:
    """Whether records under two stored schemas are encoded alike, however their files are written.

    >>> columns = [{"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100}]
    >>> table = {"kind": "table", "columns": columns, "classes": ["no", "yes"]}
    >>> records_alike(table, table | {"delimiter": ";", "columns": [*columns, {"name": "id", "role": "ignore"}]})
    True
    """
    first, second = schema_from_json(document), schema_from_json(other)
    if isinstance(first, TabularSchema) and isinstance(second, TabularSchema):
        return _alike(first) == _alike(second)
    return first == second


def _alike(schema: TabularSchema) -> tuple[object, ...]:
    """What two schemas have in common whose records mean the same."""
    rules = None if schema.one_record is None else {(c.name, schema.one_record.rule(c.name)) for c in schema.features}
    return schema.features, schema.outcome, rules


def _one_record_to_json(one: OneRecord) -> dict[str, Any]:
    return {"by": one.by, "written": one.written, "rules": dict(one.rules)}


def _column_to_json(column: Column) -> dict[str, Any]:
    match column:
        case HolderColumn():
            return {"name": column.name, "role": "holder"}
        case IgnoredColumn():
            return {"name": column.name, "role": "ignore"}
        case LabelColumn():
            return {"name": column.name, "role": "label", "labels": dict(column.spellings)}
        case TargetColumn():
            numbers = dict(column.spellings)
            dated = _counted(column) if isinstance(column, DatedTargetColumn) else {}
            return {"name": column.name, "role": "target", "part": column.part, "numbers": numbers, **dated}
        case TextColumn():
            return {"name": column.name, "role": "text", "length": column.length}
        case DateColumn():
            ends = {"minimum": column.minimum, "maximum": column.maximum, "missing": list(column.missing)}
            return {"name": column.name, "role": "feature", "type": "date", **_counted(column), **ends}
        case NumericColumn():
            numeric = {"type": "numeric", "minimum": column.minimum, "maximum": column.maximum}
            return {"name": column.name, "role": "feature", **numeric, "missing": list(column.missing)}
        case CategoricalColumn():
            categorical = {"type": "categorical", "values": list(column.values), "other": column.other}
            return {"name": column.name, "role": "feature", **categorical, "missing": list(column.missing)}
        case CodeColumn():
            coded = {"name": column.name, "role": "feature", "type": column.system, "missing": list(column.missing)}
            return coded | ({"several": True} if column.several else {})


def _counted(column: Dated) -> dict[str, str]:
    counted = {"since" if column.since else "until": column.reference}
    return {**counted, "unit": column.unit, "written": column.written}


_EXPECTED = {
    "string_type": _("Make it a text."),
    "list_type": _("Make it a list."),
    "dict_type": _("Make it an object of texts."),
    "bool_type": _("Make it true or false."),
    "int_type": _("Make it a whole number."),
    "float_type": _("Make it a number."),
    "literal_error": _("Use a value that the JSON Schema allows."),
}


_TAGS = ("holder", "label", "target", "ignore", "text", "feature", "numeric", "date", "categorical", *CODE_SYSTEMS)
_KINDS = ("numbers", "times", "labels")


def _fault(document: Any, details: ErrorDetails) -> DataError:
    """A fault that pydantic found, in the words of this project, with the column that it is about."""
    place = [part for part in details["loc"] if part not in ("table", "image")]
    if place[:1] == ["target"]:
        place = ["target", *(part for part in place[1:] if part not in _KINDS)]
    column = _column_at(document, place)
    inner = details.get("ctx", {}).get("error")
    if isinstance(inner, DataError):
        return DataError(inner.problem, inner.remedy, column=inner.column or column)
    if isinstance(inner, ValueError):
        return DataError(_("The target cannot be learned as it is declared."), str(inner))
    path = ".".join(_path(place[2:] if column is not None else place)) or "–"
    match details["type"]:
        case "missing":
            return DataError(Sentence(_("“%(path)s” is missing."), path=path), _("Add it."), column=column)
        case "extra_forbidden":
            remedy = _("Remove it, or correct its name; the JSON Schema says which there are.")
            return DataError(Sentence(_("“%(path)s” is unknown."), path=path), remedy, column=column)
        case "union_tag_not_found" | "union_tag_invalid" if not place:
            problem = _("The schema says neither “kind”: “table” nor “image”.")
            return DataError(problem, _("Make it an object with one of the two."))
        case "union_tag_not_found" | "union_tag_invalid" if place == ["target"]:
            problem = _("The kind of the target is unknown.")
            return DataError(problem, _("Use the kind numbers, times or labels; or declare classes."))
        case "union_tag_not_found" | "union_tag_invalid":
            entry = details["input"] if isinstance(details["input"], dict) else {}
            problem = Sentence(
                _("Role %(role)s with type %(type)s is unknown."),
                role=repr(entry.get("role")),
                type=repr(entry.get("type")),
            )
            remedy = _(
                "Use the role holder, label, target, text or ignore; or feature with the type numeric, date, "
                "categorical, icd9, icd10, atc or loinc."
            )
            return DataError(problem, remedy, column=column)
        case "model_attributes_type" | "dict_attributes_type":
            problem = Sentence(_("“%(path)s” is no object."), path=path)
            return DataError(problem, _("Write it with a kind, or a column with name and role."), column=column)
    problem = Sentence(_("“%(path)s” is %(value)s."), path=path, value=repr(details["input"])[:60])
    return DataError(problem, _EXPECTED.get(details["type"], details["msg"]), column=column)


def _path(place: list[int | str]) -> Iterator[str]:
    """Names on the way to a place, with lists counted from 1; without those that only choose a model."""
    for part in place:
        if isinstance(part, int):
            yield str(part + 1)
        elif part not in _TAGS:
            yield part


def _column_at(document: Any, place: list[int | str]) -> str | None:
    if len(place) > 1 and place[0] == "columns" and isinstance(place[1], int):
        column = document["columns"][place[1]]
        name = column.get("name") if isinstance(column, dict) else None
        return name if isinstance(name, str) else None
    return None
