"""The table reader and the catalogue of known datasets."""

import gzip
import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learning.formats import (
    DataError,
    Report,
    Rows,
    TabularSchema,
    catalogue_load,
    read_file,
    schema_draft,
    schema_from_json,
    schema_to_json,
)
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
from tests.reading import zipped

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
    archive, gzipped = tmp_path / "people.zip", tmp_path / "people.csv.gz"
    gzipped.write_bytes(gzip.compress(plain.read_bytes()))
    members = {"__MACOSX/._people.csv": "junk", "inner/people.csv": TEXT, "inner/readme.txt": "hello"}
    archive.write_bytes(zipped(members))
    expected = read_file(plain, SCHEMA)
    for rows in (read_file(gzipped, SCHEMA), read_file(archive, SCHEMA, member="people.csv")):
        assert (rows.x == expected.x).all() and rows.holders == expected.holders
    with pytest.raises(DataError, match=r"exactly one file, but contains: inner/people.csv, inner/readme.txt"):
        read_file(archive, SCHEMA)


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
    with pytest.raises(DataError, match="No column in the schema has the role “holder”"):
        read_file(path, TabularSchema(FEATURES, ("no", "yes")), labels=False)


MESSAGES = HolderColumn("who"), LabelColumn("kind"), TextColumn("message", 10), IgnoredColumn("age")
SMS = TabularSchema(MESSAGES, ("ham", "spam"))


def test_texts_are_kept_as_bytes_in_tables_and_arrays(tmp_path):
    text = 'who,kind,message,age\nada,ham,"so, née 1",3\nben,spam,12345678é90,4\ncy,ham,,5\n'
    rows = read_file(_write(tmp_path, text), SMS)
    assert rows.x.dtype == np.uint8 and rows.x.shape == (3, 10) and is_text(rows.x)
    assert texts(rows.x) == ["so, née 1", "12345678é", ""] and rows.y.tolist() == [0, 1, 0]
    assert as_numbers(rows.x) is rows.x, "bytes of texts are not pixels"
    assert SMS.outside([{"message": "12345678é90"}, {"message": ""}]) == [["message"], []]
    assert preview(SMS, rows)[0]["cells"] == [["message", "so, née 1"]]
    path = tmp_path / "sms.npz"
    np.savez(path, x=np.array(["née", "b"]), y=np.array([0, 1]), holder=np.array(["ada", "ben"]))
    assert texts(read_file(path, SMS).x) == ["née", "b"]


def test_a_schema_of_texts_has_no_other_columns_and_can_be_stored():
    assert schema_from_json(schema_to_json(SMS)) == SMS
    document = {"name": "m", "role": "text"}
    table = {"kind": "table", "columns": [document], "classes": ["a", "b"]}
    assert schema_from_json(table).shape == (2000,)
    with pytest.raises(DataError, match="number of bytes from 1 to 65,536"):
        schema_from_json(table | {"columns": [document | {"length": 0}]})
    with pytest.raises(DataError, match="The schema has a text column and another column"):
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


def test_the_digits_need_no_download():
    splits = catalogue_load("digits")
    assert [len(rows) for rows in (splits.private, splits.public, splits.test)] == [1300, 300, 197]
    assert len(set(splits.private.holders)) == 1300
    assert splits.public.holders is None and splits.test.holders is None
    images = np.concatenate([splits.private.x, splits.public.x, splits.test.x]).reshape(1797, -1)
    assert len(np.unique(images, axis=0)) == 1797  # no row is in two splits
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
        assert seen[-1], "progress ends at 100 %"
        raw = (splits.private.x * 255).round().astype(np.uint8).tobytes()
        header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
        # Numbers from the dataset's description in the project.
        assert hashlib.md5(header + raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    if name == "diabetes":  # all records of a private patient must be private, according to the file itself
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


def test_arrays_of_rows_have_the_same_length_also_after_selection():
    for labels, holders, problem in (([1], None, "2 records but 1 label"), (None, ["a"] * 3, "2 records but 3 holder")):
        with pytest.raises(DataError, match=problem):
            Rows(np.zeros((2, 1), np.float32), None if labels is None else np.array(labels), holders)
    rows = Rows(np.arange(3, dtype=np.float32)[:, np.newaxis], np.array([0, 1, 2]), ["a", "b", "c"])
    for which in (np.array([2, 0]), np.array([True, False, True]), slice(1, None)):
        chosen = rows[which]
        assert chosen.x[:, 0].tolist() == chosen.y.tolist() == ["abc".index(name) for name in chosen.holders]


LOINC, ICD10, SNOMED = "http://loinc.org", "http://hl7.org/fhir/sid/icd-10", "http://snomed.info/sct"


def concept(system: str, code: str) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code}]}


def measured(patient: str, code: str, value: float, when: str, unit: str = "mg/dL", **more: Any) -> dict[str, Any]:
    quantity = {"valueQuantity": {"value": value, "unit": unit}}
    about = {"subject": {"reference": patient}, "effectiveDateTime": when}
    return {"resourceType": "Observation", "status": "final", "code": concept(LOINC, code), **about, **quantity, **more}


def ill(patient: str, system: str, code: str, **more: Any) -> dict[str, Any]:
    about = {"subject": {"reference": patient}, "onsetDateTime": "2020-01-01"}
    return {"resourceType": "Condition", "code": concept(system, code), **about, **more}


PRESSURE = measured("Patient/a", "85354-9", 0, "2024-02-01")
del PRESSURE["valueQuantity"]
PRESSURE["component"] = [
    {"code": concept(LOINC, code), "valueQuantity": {"value": value, "code": "mm[Hg]"}}
    for code, value in (("8480-6", 140), ("8462-4", 90))
]
RESOURCES: list[tuple[str, dict[str, Any]]] = [
    ("", {"resourceType": "Patient", "id": "a", "gender": "female", "birthDate": "1970-01-01"}),
    ("urn:uuid:1", {"resourceType": "Patient", "id": "b", "gender": "male", "birthDate": "1980"}),
    ("", measured("Patient/a", "2345-7", 90, "2024-01-01")),
    ("", measured("Patient/a", "2345-7", 110, "2024-03-01")),
    ("", measured("urn:uuid:1", "2345-7", 5.5, "2024-03-01", "mmol/L")),
    ("", measured("Patient/a", "2345-7", 999, "2025-01-01", status="entered-in-error")),
    ("", measured("Patient/nobody", "2345-7", 1, "2025-01-01")),
    ("", PRESSURE),
    ("", ill("Patient/a", ICD10, "I50.1")),
    ("", ill("Patient/a", ICD10, "I10")),
    ("", ill("urn:uuid:1", SNOMED, "44054006")),
    ("", ill("urn:uuid:1", ICD10, "E11", verificationStatus=concept("v", "refuted"))),
    ("", {"resourceType": "Encounter", "id": "e"}),
]


def bundle() -> bytes:
    entries = [{"fullUrl": url, "resource": resource} for url, resource in RESOURCES]
    return json.dumps({"resourceType": "Bundle", "type": "collection", "entry": entries}, indent=1).encode()


def ndjson() -> bytes:
    lines = [json.dumps(resource).replace("urn:uuid:1", "Patient/b") for _url, resource in RESOURCES]
    return "\n".join(lines).encode()


MEASURED = "person_id,measurement_concept_id,measurement_date,value_as_number,value_as_concept_id,unit_source_value"
OMOP = {
    "person.csv": "person_id,gender_concept_id,year_of_birth,month_of_birth,day_of_birth\n"
    "1,8532,1970,1,1\n2,8507,1980,,\n",
    "MEASUREMENT.csv": f"{MEASURED}\n1,3004501,2024-01-01,90,0,mg/dL\n1,3004501,2024-03-01,110,0,mg/dL\n"
    "2,3004501,2024-03-01,5.5,0,mmol/L\n2,1,2024-03-01,,0,\n",
    "condition_occurrence.csv": "person_id,condition_concept_id,condition_start_date,condition_source_concept_id\n"
    "1,316139,2020-01-01,35207792\n2,201826,2020-01-01,0\n",
    "concept.csv": "concept_id\tconcept_name\tvocabulary_id\tconcept_code\n3004501\tGlucose\tLOINC\t2345-7\n"
    '201826\tT2D\tSNOMED\t44054006\n35207792\t"Left heart failure\tICD10CM\tI50.1\n',
}


def read(tmp_path: Path, name: str, content: bytes) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Return the draft, and the encoded numbers by person and name, after checking that no row has an error."""
    path = tmp_path / name
    path.write_bytes(content)
    document = schema_draft(path).document
    for column in document["columns"]:
        if column["name"] == "born":
            column |= {"until": "2024-01-01", "minimum": 0, "maximum": 100}
    schema, report = schema_from_json(document), Report()
    rows = read_file(path, schema, labels=False, report=report)
    assert not report.count, [str(fault) for fault in report.faults]
    encoded = [dict(zip(schema.feature_names, row, strict=True)) for row in rows.x.tolist()]
    return document, dict(zip(rows.holders or [], encoded, strict=True))


EXTRACTS = {"a.json": bundle(), "a.ndjson": ndjson(), "a.zip": zipped({"Patients.ndjson": ndjson()})}
EXTRACTS["omop.zip"] = zipped(OMOP)


@pytest.mark.parametrize("name", EXTRACTS)
def test_an_extract_is_drafted_and_read_as_one_record_of_each_person(tmp_path: Path, name: str) -> None:
    draft, found = read(tmp_path, name, EXTRACTS[name])
    assert draft["one_record"]["by"] == "date"
    one, other = found["a" if "omop" not in name else "1"], found["b" if "omop" not in name else "2"]
    assert (one["born"], other["born"]) == (pytest.approx(0.54, abs=1e-3), pytest.approx(0.435, abs=1e-3))
    assert (one["sex = female"], other["sex = male"]) == (1, 1)
    columns = {each["name"]: each for each in draft["columns"]}
    glucose = one["2345-7 [mg/dL]"] * columns["2345-7 [mg/dL]"]["maximum"]
    assert glucose == pytest.approx(110), "the last one that is not marked as an error"
    assert other["2345-7 [mg/dL] not known"] == 1 and other["2345-7 [mmol/L]"] > 0
    assert (one["condition: circulatory"], other["condition: circulatory"]) == (1, 0), "twice is like once"
    assert (one["condition: 44054006"], other["condition: 44054006"]) == (0, 1)
    assert not any("endocrine" in column for column in one), "refuted conditions do not count"
    if name != "omop.zip":  # components are separate measurements
        assert columns.keys() >= {"8480-6 [mm[Hg]]", "8462-4 [mm[Hg]]"} and "85354-9" not in columns
        assert other["8480-6 [mm[Hg]] not known"] == 1


def test_a_condition_is_learned_and_a_later_file_may_have_other_columns(tmp_path: Path) -> None:
    name, path, later = "condition: circulatory", tmp_path / "a.json", tmp_path / "a.ndjson"
    path.write_bytes(bundle())
    document = schema_draft(path).document
    label = {name: {"name": name, "role": "label", "labels": {"": "no"}}}
    learned = document | {"columns": [label.get(each["name"], each) for each in document["columns"]]}
    learned["one_record"] = document["one_record"] | {"rules": document["one_record"]["rules"] | {name: "any"}}
    rows = read_file(path, schema_from_json(learned))
    assert rows.y is not None and dict(zip(rows.holders or [], rows.y.tolist(), strict=True)) == {"a": 1, "b": 0}
    few = [json.dumps(RESOURCES[0][1]), json.dumps(measured("Patient/a", "777-3", 200, "2024-01-01"))]
    later.write_text("\n".join(few))
    schema = schema_from_json(document)
    rows = read_file(later, schema, labels=False)
    found = dict(zip(schema.feature_names, rows.x[0], strict=True))
    assert len(rows) == 1 and found["2345-7 [mg/dL] not known"] == 1 and found[name] == 0


@pytest.mark.parametrize(("first", "header"), [("who,sex,y", True), ("ada,f,y", False), ("who,f,m", False)])
def test_a_name_that_is_also_a_value_is_a_name(tmp_path: Path, first: str, header: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n" + "ada,f,y\nben,m,n\nada,m,m\n" * 4)
    assert schema_draft(path).document["header"] is header
