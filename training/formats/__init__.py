"""Data formats: declared schemas, validating readers, known datasets. Imports no Django."""

from training.formats.catalogue import CATALOGUE, Splits, catalogue_load
from training.formats.documents import json_schema, records_alike, schema_from_json, schema_to_json
from training.formats.draft import schema_draft
from training.formats.files import check_sha256
from training.formats.read import read_file
from training.formats.report import DataErrors, Report
from training.formats.rows import DataError, Rows
from training.formats.schema import ImageSchema, Schema, TabularSchema

__all__ = [
    "CATALOGUE",
    "DataError",
    "DataErrors",
    "ImageSchema",
    "Report",
    "Rows",
    "Schema",
    "Splits",
    "TabularSchema",
    "catalogue_load",
    "check_sha256",
    "json_schema",
    "read_file",
    "records_alike",
    "schema_draft",
    "schema_from_json",
    "schema_to_json",
]
