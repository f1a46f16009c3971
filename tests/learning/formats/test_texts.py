"""Texts: a column of them, as bytes."""

import numpy as np
import pytest

from learning.formats import DataError, TabularSchema, read_file, schema_from_json, schema_to_json
from learning.formats.columns import HolderColumn, IgnoredColumn, LabelColumn, NumericColumn, TextColumn, texts
from learning.formats.preview import preview
from learning.formats.rows import as_numbers, is_text

SMS = TabularSchema(
    (HolderColumn("who"), LabelColumn("kind"), TextColumn("message", 10), IgnoredColumn("age")), ("ham", "spam")
)


def test_texts_of_a_table_are_kept_as_bytes(tmp_path):
    path = tmp_path / "sms.csv"
    path.write_text('who,kind,message,age\nada,ham,"so, née 1",3\nben,spam,12345678é90,4\ncy,ham,,5\n', "utf-8")
    rows = read_file(path, SMS)
    assert rows.x.dtype == np.uint8 and rows.x.shape == (3, 10) and is_text(rows.x)
    assert texts(rows.x) == ["so, née 1", "12345678é", ""] and rows.y.tolist() == [0, 1, 0]
    assert as_numbers(rows.x) is rows.x, "bytes of texts are no pixels"
    assert SMS.outside([{"message": "12345678é90"}, {"message": ""}]) == [["message"], []]
    assert preview(SMS, rows)[0]["cells"] == [["message", "so, née 1"]]


def test_a_schema_of_texts_is_written_and_read():
    assert schema_from_json(schema_to_json(SMS)) == SMS
    document = {"name": "m", "role": "text"}
    table = {"kind": "table", "columns": [document], "classes": ["a", "b"]}
    assert schema_from_json(table).shape == (2000,)
    with pytest.raises(DataError, match="number of bytes from 1 to 65,536"):
        schema_from_json(table | {"columns": [document | {"length": 0}]})


def test_texts_are_learned_from_alone():
    with pytest.raises(DataError, match="Beside a column of texts"):
        TabularSchema((TextColumn("m", 10), NumericColumn("age", 0, 1)), ("a", "b"))
    with pytest.raises(DataError, match="row 2, column message: 3 is no text"):
        SMS.encode([{"message": "x"}, {"message": 3}])


def test_texts_of_an_array(tmp_path):
    path = tmp_path / "sms.npz"
    np.savez(path, x=np.array(["née", "b"]), y=np.array([0, 1]), holder=np.array(["ada", "ben"]))
    assert texts(read_file(path, SMS).x) == ["née", "b"]
