"""Tests of the table reader and of the catalogue of known datasets."""

import gzip
import hashlib
import zipfile
from collections import Counter

import numpy as np
import pytest

from learning.formats import DataError, Rows, TabularSchema, catalogue_load, read_file, schema_from_json, schema_to_json
from learning.formats.columns import (
    CategoricalColumn,
    HolderColumn,
    IgnoredColumn,
    LabelColumn,
    NumericColumn,
    TextColumn,
    texts,
)
from learning.formats.files import check_sha256
from learning.formats.read import preview
from learning.formats.rows import as_numbers, is_text

FEATURES = NumericColumn("age", 0, 100), CategoricalColumn("sex", ("f", "m"))
COLUMNS = HolderColumn("who"), *FEATURES, IgnoredColumn("note"), LabelColumn("ill")
SCHEMA = TabularSchema(COLUMNS, ("no", "yes"))
TEXT = 'who,age,sex,note,ill\nada,50,f,"two\nlines",yes\n\nben , 25 ,m,,no\nada,0,f,x,no\n'


def _write(folder, text, name="people.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_becomes_rows(tmp_path):
    path, seen = _write(tmp_path, TEXT), []
    rows = read_file(path, SCHEMA, progress=lambda *step: seen.append(step))
    assert rows.x.tolist() == [[0.5, 1, 0], [0.25, 0, 1], [0, 1, 0]] and rows.x.dtype == np.float32
    assert rows.y.tolist() == [1, 0, 0]
    assert rows.holders == ["ada", "ben", "ada"]
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    rows = read_file(_write(tmp_path, "ill,sex,age,who\nyes,m,10,ada\n"), SCHEMA)
    assert (rows.x.tolist(), rows.y.tolist(), rows.holders) == ([[np.float32(0.1), 0, 1]], [1], ["ada"]), "by name"


def test_compressed_files_read_alike(tmp_path):
    plain = _write(tmp_path, TEXT)
    zipped, gzipped = tmp_path / "people.zip", tmp_path / "people.csv.gz"
    gzipped.write_bytes(gzip.compress(plain.read_bytes()))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("__MACOSX/._people.csv", "junk")
        archive.writestr("inner/people.csv", TEXT)
        archive.writestr("inner/readme.txt", "hello")
    expected = read_file(plain, SCHEMA)
    for rows in (read_file(gzipped, SCHEMA), read_file(zipped, SCHEMA, member="people.csv")):
        assert (rows.x == expected.x).all() and rows.holders == expected.holders
    with pytest.raises(DataError, match=r"exactly one file, but contains: inner/people.csv, inner/readme.txt"):
        read_file(zipped, SCHEMA)


def test_a_file_without_header_and_with_comments(tmp_path):
    schema = TabularSchema(COLUMNS, ("no", "yes"), delimiter=";", header=False, comment="#")
    text = "# by hand\nada;50;f;;yes\n# more\nben;x;m;;no\n"
    assert read_file(_write(tmp_path, text.replace("x", "25")), schema).holders == ["ada", "ben"]
    with pytest.raises(DataError, match="row 4, column age: “x” is not a number"):
        read_file(_write(tmp_path, text), schema)


WRITTEN = HolderColumn("wer"), NumericColumn("CRP", 0, 100, ("", "k.A.")), LabelColumn("krank")
GERMAN = TabularSchema(WRITTEN, ("nein", "ja"), delimiter=";", decimal=",")


def test_an_export_with_semicolons_decimal_commas_and_a_byte_order_mark(tmp_path):
    text = '\ufeff"wer";"CRP";"krank"\r\nada;7,5;ja\r\nben;k.A.;nein\r\nada;;nein\r\nada;50;nein\r\n'
    rows = read_file(_write(tmp_path, text), GERMAN)
    assert rows.x.tolist() == [[np.float32(0.075), 0], [0, 1], [0, 1], [0.5, 0]]
    assert rows.holders == ["ada", "ben", "ada", "ada"]


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        ("1.234", GERMAN, "“1.234” contains a point, but the decimal mark is a comma"),
        ("viel", GERMAN, "Write a finite number, or “” / k.A. if it is unknown."),
        ("7,5", TabularSchema(GERMAN.columns, GERMAN.classes, delimiter=";"), "Declare “decimal”: “,” in the schema."),
        ("", TabularSchema((NumericColumn("CRP", 0, 1), *GERMAN.columns[::2]), GERMAN.classes, ";"), "“missing”"),
    ],
)
def test_an_unreadable_number_is_reported_with_its_remedy(tmp_path, value, schema, message):
    with pytest.raises(DataError) as error:
        read_file(_write(tmp_path, f"wer;CRP;krank\nada;5;ja\nben;{value};nein\n"), schema)
    assert message in str(error.value) and "row 3, column CRP" in str(error.value)


def test_public_records_need_neither_labels_nor_holders(tmp_path):
    path = _write(tmp_path, "age,sex\n50,f\n")
    rows = read_file(path, SCHEMA, labels=False, holders=False)
    assert (rows.y, rows.holders, len(rows)) == (None, None, 1)
    with pytest.raises(DataError, match="row 1, column who: The column is missing"):
        read_file(path, SCHEMA)
    with pytest.raises(DataError, match="No column in the schema has the role holder"):
        read_file(path, TabularSchema(FEATURES, ("no", "yes")), labels=False)


MESSAGES = HolderColumn("who"), LabelColumn("kind"), TextColumn("message", 10), IgnoredColumn("age")
SMS = TabularSchema(MESSAGES, ("ham", "spam"))


def test_texts_are_kept_as_bytes_in_tables_and_arrays(tmp_path):
    text = 'who,kind,message,age\nada,ham,"so, née 1",3\nben,spam,12345678é90,4\ncy,ham,,5\n'
    rows = read_file(_write(tmp_path, text), SMS)
    assert rows.x.dtype == np.uint8 and rows.x.shape == (3, 10) and is_text(rows.x)
    assert texts(rows.x) == ["so, née 1", "12345678é", ""] and rows.y.tolist() == [0, 1, 0]
    assert as_numbers(rows.x) is rows.x, "bytes of texts are no pixels"
    assert SMS.outside([{"message": "12345678é90"}, {"message": ""}]) == [["message"], []]
    assert preview(SMS, rows)[0]["cells"] == [["message", "so, née 1"]]
    path = tmp_path / "sms.npz"
    np.savez(path, x=np.array(["née", "b"]), y=np.array([0, 1]), holder=np.array(["ada", "ben"]))
    assert texts(read_file(path, SMS).x) == ["née", "b"]


def test_a_schema_of_texts_is_of_texts_alone_and_written_and_read():
    assert schema_from_json(schema_to_json(SMS)) == SMS
    document = {"name": "m", "role": "text"}
    table = {"kind": "table", "columns": [document], "classes": ["a", "b"]}
    assert schema_from_json(table).shape == (2000,)
    with pytest.raises(DataError, match="number of bytes from 1 to 65,536"):
        schema_from_json(table | {"columns": [document | {"length": 0}]})
    with pytest.raises(DataError, match="The schema has a text column as well as"):
        TabularSchema((TextColumn("m", 10), NumericColumn("age", 0, 1)), ("a", "b"))
    with pytest.raises(DataError, match="row 2, column message: 3 is not text"):
        SMS.encode([{"message": "x"}, {"message": 3}])


def test_rows_are_counted_across_quoted_lines_and_chunks(tmp_path):
    path = _write(tmp_path, TEXT.replace("25", "young"))
    with pytest.raises(DataError) as error:
        read_file(path, SCHEMA)
    assert str(error.value).startswith(f"{path}, row 5, column age: “young” is not a number") and error.value.remedy
    lines = [f"h{i},{i % 100},f,,no" for i in range(25_000)]
    lines[23_456] = "h23456,?,f,,no"
    with pytest.raises(DataError, match=r"row 23458, column age"):
        read_file(_write(tmp_path, "\n".join(["who,age,sex,note,ill", *lines])), SCHEMA)


def test_checksums_are_those_of_the_uncompressed_content(tmp_path):
    plain, gzipped = _write(tmp_path, "abc"), tmp_path / "people.csv.gz"
    gzipped.write_bytes(gzip.compress(b"abc"))
    sha256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    check_sha256(plain, sha256_of_abc)
    check_sha256(gzipped, sha256_of_abc.upper())
    with pytest.raises(DataError, match="SHA-256 of the uncompressed content is ba7816bf"):
        check_sha256(plain, "0" * 64)


def test_digits_are_always_there():
    splits = catalogue_load("digits")
    assert [len(rows) for rows in (splits.private, splits.public, splits.test)] == [1300, 300, 197]
    assert len(set(splits.private.holders)) == 1300
    assert splits.public.holders is None and splits.test.holders is None
    images = np.concatenate([splits.private.x, splits.public.x, splits.test.x]).reshape(1797, -1)
    assert len(np.unique(images, axis=0)) == 1797  # nothing is in two splits
    assert (images.min(), images.max()) == (0, 1)
    assert (catalogue_load("digits").private.x == splits.private.x).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["mnist", "adult", "diabetes"])
def test_published_datasets_are_split_as_their_publishers_count_them(name, data_dir, tmp_path):
    counts = {"mnist": (70_000, 60_000, None), "diabetes": (101_766, None, 11_357)}
    counts["adult"] = (32_561 + 16_281, 32_561, 7_841 + 3_846)
    (records, private, positive), folder, seen = counts[name], data_dir, []
    if name == "adult":  # in its publisher's archive
        folder = tmp_path
        (folder / "adult").mkdir()
        with zipfile.ZipFile(folder / "adult" / "adult.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in ("adult.data", "adult.test", "adult.names"):
                archive.write(data_dir / "adult" / file, file)
    splits = catalogue_load(name, folder, lambda done, total: seen.append(done == total))
    rows = [splits.private, splits.public, splits.test]
    assert sum(map(len, rows)) == records and private in (None, len(splits.private))
    assert positive in (None, sum(int(part.y.sum()) for part in rows))
    assert all(np.isfinite(part.x).all() and part.x.min() >= 0 and part.x.max() <= 1 for part in rows)
    assert schema_from_json(schema_to_json(splits.schema)) == splits.schema
    assert len(set(splits.private.holders)) == (60_000 if name == "diabetes" else len(splits.private))
    if name == "mnist":
        assert seen[-1], "progress ends at all of it"
        raw = (splits.private.x * 255).round().astype(np.uint8).tobytes()
        header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
        # As the datasets' description in the project gives it.
        assert hashlib.md5(header + raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    if name == "diabetes":  # every record of a private patient must be private, told from the file itself
        with (
            zipfile.ZipFile(data_dir / "diabetes130" / "dataset_diabetes.zip") as archive,
            archive.open("dataset_diabetes/diabetic_data.csv") as file,
        ):
            next(file)
            patients = [line.split(b",", 2)[1].decode() for line in file]
        counts, found = Counter(patients), Counter(splits.private.holders)
        assert all(counts[holder.removeprefix("patient-")] == number for holder, number in found.items())


def test_a_missing_or_changed_file_is_refused(tmp_path):
    with pytest.raises(DataError) as error:
        catalogue_load("adult", tmp_path)
    for part in ("adult.data is missing", "archive.ics.uci.edu/dataset/2", str(tmp_path / "adult"), "5b00264637db"):
        assert part in str(error.value)
    with pytest.raises(DataError, match="IPATE_DATA_DIR"):
        catalogue_load("mnist")
    with pytest.raises(DataError, match=r"no known dataset “cifar”.*digits, mnist, adult, diabetes"):
        catalogue_load("cifar", tmp_path)
    (tmp_path / "adult").mkdir()
    for name in ("adult.data", "adult.test"):
        (tmp_path / "adult" / name).write_text("39, State-gov\n")
    with pytest.raises(DataError, match="SHA-256"):
        catalogue_load("adult", tmp_path)


def test_rows_fit_together_and_stay_so_where_some_are_chosen():
    for labels, holders, problem in (
        ([1], None, "2 records but 1 labels"),
        (None, ["a"] * 3, "2 records but 3 holders"),
    ):
        with pytest.raises(DataError, match=problem):
            Rows(np.zeros((2, 1), np.float32), None if labels is None else np.array(labels), holders)
    rows = Rows(np.arange(3, dtype=np.float32)[:, np.newaxis], np.array([0, 1, 2]), ["a", "b", "c"])
    for which in (np.array([2, 0]), np.array([True, False, True]), slice(1, None)):
        chosen = rows[which]
        assert chosen.x[:, 0].tolist() == chosen.y.tolist() == ["abc".index(name) for name in chosen.holders]
