"""Data formats: declared schemas, validating readers, known datasets. Imports no Django."""

from training.formats.catalogue import CATALOGUE, Splits, catalogue_load
from training.formats.files import check_sha256
from training.formats.read import read_file
from training.formats.rows import DataError, Rows
from training.formats.schema import ImageSchema, Schema, TabularSchema
from training.formats.schema_json import records_alike, schema_from_json, schema_to_json

__all__ = [
    "CATALOGUE",
    "DataError",
    "ImageSchema",
    "Rows",
    "Schema",
    "Splits",
    "TabularSchema",
    "catalogue_load",
    "check_sha256",
    "read_file",
    "records_alike",
    "schema_from_json",
    "schema_to_json",
]
