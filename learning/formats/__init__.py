"""Data formats: declared schemas, validating readers, known datasets. Does not import Django."""

from learning.formats.catalogue import Splits, catalogue_files, catalogue_load
from learning.formats.documents import encodes_alike, json_schema, outcome_of, schema_from_json, schema_to_json
from learning.formats.draft import schema_draft
from learning.formats.files import check_sha256
from learning.formats.read import read_file
from learning.formats.rows import DataError, DataErrors, Report, Rows
from learning.formats.schema import ImageSchema, Schema, TabularSchema
