"""FHIR resources and OMOP tables as one record of each person."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from learning.formats import Report, read_file, schema_draft, schema_from_json

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


def zipped(**files: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


MEASURED = "person_id,measurement_concept_id,measurement_date,value_as_number,value_as_concept_id,unit_source_value"
OMOP = {
    "person__csv": "person_id,gender_concept_id,year_of_birth,month_of_birth,day_of_birth\n"
    "1,8532,1970,1,1\n2,8507,1980,,\n",
    "MEASUREMENT__csv": f"{MEASURED}\n1,3004501,2024-01-01,90,0,mg/dL\n1,3004501,2024-03-01,110,0,mg/dL\n"
    "2,3004501,2024-03-01,5.5,0,mmol/L\n2,1,2024-03-01,,0,\n",
    "condition_occurrence__csv": "person_id,condition_concept_id,condition_start_date,condition_source_concept_id\n"
    "1,316139,2020-01-01,35207792\n2,201826,2020-01-01,0\n",
    "concept__csv": "concept_id\tconcept_name\tvocabulary_id\tconcept_code\n3004501\tGlucose\tLOINC\t2345-7\n"
    '201826\tT2D\tSNOMED\t44054006\n35207792\t"Left heart failure\tICD10CM\tI50.1\n',
}


def read(tmp_path: Path, name: str, content: bytes) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """The draft, and by person the encoded numbers by their names, without the fault of any row."""
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


EXTRACTS = {"a.json": bundle(), "a.ndjson": ndjson(), "a.zip": zipped(Patients__ndjson=ndjson())}
EXTRACTS["omop.zip"] = zipped(**OMOP)


@pytest.mark.parametrize("name", EXTRACTS)
def test_an_extract_is_drafted_and_read_as_one_record_of_each_person(tmp_path: Path, name: str) -> None:
    draft, found = read(tmp_path, name, EXTRACTS[name])
    assert draft["one_record"]["by"] == "date"
    one, other = found["a" if "omop" not in name else "1"], found["b" if "omop" not in name else "2"]
    assert (one["born"], other["born"]) == (pytest.approx(0.54, abs=1e-3), pytest.approx(0.435, abs=1e-3))
    assert (one["sex = female"], other["sex = male"]) == (1, 1)
    columns = {each["name"]: each for each in draft["columns"]}
    glucose = one["2345-7 [mg/dL]"] * columns["2345-7 [mg/dL]"]["maximum"]
    assert glucose == pytest.approx(110), "the last one, and none that is an error"
    assert other["2345-7 [mg/dL] not known"] == 1 and other["2345-7 [mmol/L]"] > 0
    assert (one["condition: circulatory"], other["condition: circulatory"]) == (1, 0), "recorded twice is recorded"
    assert (one["condition: 44054006"], other["condition: 44054006"]) == (0, 1)
    assert not any("endocrine" in column for column in one), "what was refuted was not so"
    if name != "omop.zip":  # components are measurements of their own
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
