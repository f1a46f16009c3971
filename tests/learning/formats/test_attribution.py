"""FHIR and OMOP: a record belongs to a person only if it says so, and every resource and row is accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.formats import DataError
from learning.formats.extracts import Fact
from learning.formats.fhir import fhir_facts
from learning.formats.omop import omop_facts
from learning.formats.read import format_of
from learning.formats.rows import Balance
from tests.learning.formats.test_table import LOINC, concept, ill
from tests.reading import zipped

FIELD = Path(__file__).parents[2] / "field"
SERVER = "https://fhir.example.org/r4"
GM = "http://fhir.de/CodeSystem/bfarm/icd-10-gm"
DIABETES = "condition: endocrine, nutritional, metabolic"


def patient(name: str, **more: Any) -> dict[str, Any]:
    identifier = [{"system": "urn:mrn", "value": f"M-{name}"}]
    return {"resourceType": "Patient", "id": name, "gender": "male", "identifier": identifier, **more}


def glucose(subject: dict[str, Any] | None, value: float = 90, **more: Any) -> dict[str, Any]:
    about = {} if subject is None else {"subject": subject}
    coded = {"code": concept(LOINC, "2345-7"), "valueQuantity": {"value": value, "code": "mg/dL"}}
    return {"resourceType": "Observation", "status": "final", **coded, **about, **more}


def at(reference: str) -> dict[str, Any]:
    return {"reference": reference}


def read(
    tmp_path: Path, *resources: dict[str, Any], bundle: dict[str, Any] | None = None
) -> tuple[list[Fact], Balance]:
    """Return facts and balance of resources in NDJSON or in a bundle."""
    path, balance = tmp_path / "a.ndjson", Balance()
    documents = resources if bundle is None else [{"resourceType": "Bundle", "entry": list(resources), **bundle}]
    path.write_text("\n".join(map(json.dumps, documents)))
    facts = list(fhir_facts(path, balance))
    balance.check()
    return facts, balance


def measured(facts: list[Fact]) -> list[tuple[str, object]]:
    return [(fact.person, fact.value) for fact in facts if fact.column.startswith("2345-7")]


def reasons(balance: Balance, part: str = "Observation") -> dict[str, int]:
    return {reason: each.count for reason, each in balance.parts[part].left_out.items()}


SUBJECTS = {
    "relative": (at("Patient/b"), "b"),
    "versioned": (at("Patient/b/_history/2"), "b"),
    "absolute": (at(f"{SERVER}/Patient/b"), "b"),
    "absolute and versioned": (at(f"{SERVER}/Patient/b/_history/7"), "b"),
    "conditional": (at("Patient?identifier=urn:mrn|M-b"), "b"),
    "conditional, escaped": (at("Patient?identifier=urn%3Amrn%7CM-b"), "b"),
    "by id": (at("Patient?_id=b"), "b"),
    "logical": ({"identifier": {"system": "urn:mrn", "value": "M-b"}}, "b"),
    "both": (at("Patient/b") | {"identifier": {"system": "urn:mrn", "value": "M-b"}}, "b"),
    "contradicting": (at("Patient/a") | {"identifier": {"system": "urn:mrn", "value": "M-b"}}, None),
    "another system": ({"identifier": {"system": "urn:other", "value": "M-b"}}, None),
    "no system": ({"identifier": {"value": "M-b"}}, None),
    "a name": ({"display": "quality control"}, None),
    "empty": (at(""), None),
    "nothing": ({}, None),
    "missing": (None, None),
    "unknown": (at("Patient/z"), None),
    "a group": (at("Group/b"), None),
    "contained": (at("#b"), None),
    "another search": (at("Patient?name=b"), None),
    "a prefix": (at("Patient/bb"), None),
}


@pytest.mark.parametrize("spelling", SUBJECTS)
def test_an_observation_belongs_to_the_patient_that_it_names_or_to_nobody(tmp_path: Path, spelling: str) -> None:
    subject, owner = SUBJECTS[spelling]
    facts, balance = read(tmp_path, patient("a"), patient("b"), glucose(at("Patient/a"), 1), glucose(subject, 2))
    assert measured(facts) == [("a", 1), *([(owner, 2)] if owner else [])]
    assert sum(reasons(balance).values()) == (owner is None)


def test_addresses_of_a_bundle_and_of_two_servers_are_told_apart(tmp_path: Path) -> None:
    entries = [
        {"fullUrl": "urn:uuid:1", "resource": patient("a")},
        {"fullUrl": f"{SERVER}/Patient/b", "resource": patient("b")},
        {"fullUrl": f"{SERVER}/Observation/1", "resource": glucose(at("Patient/b"), 1)},
        {"resource": glucose(at("urn:uuid:1"), 2)},
        {"resource": glucose(at("https://other.example/Patient/b"), 3)},
        {"resource": glucose(at("https://other.example/Patient/a"), 4)},
        {"resource": glucose(at(f"{SERVER}/Patient/a"), 5)},
    ]
    facts, balance = read(tmp_path, *entries, bundle={"type": "collection"})
    assert measured(facts) == [("b", 1), ("a", 2)]
    assert reasons(balance) == {"The resource's patient is on another server.": 3}
    twice = [{"fullUrl": f"{server}/Patient/a", "resource": patient("a")} for server in (SERVER, "https://o.example")]
    with pytest.raises(DataError, match="two patients with the id “a”"):
        read(tmp_path, *twice, bundle={"type": "collection"})


@given(order=st.permutations(range(12)), spelled=st.lists(st.sampled_from(sorted(SUBJECTS)), min_size=10, max_size=10))
@settings(max_examples=40, deadline=None)
def test_no_order_and_no_spelling_gives_a_record_to_another_person(tmp_path_factory, order, spelled) -> None:
    observations = [glucose(SUBJECTS[name][0], number) for number, name in enumerate(spelled)]
    resources = [patient("a"), patient("b"), *observations]
    facts, balance = read(tmp_path_factory.mktemp("fhir"), *(resources[place] for place in order))
    owners = {number: SUBJECTS[name][1] for number, name in enumerate(spelled)}
    assert sorted(measured(facts)) == sorted((owner, number) for number, owner in owners.items() if owner)
    assert balance.parts["Observation"].seen == len(spelled)


def test_merged_patients_count_as_the_remaining_one(tmp_path: Path) -> None:
    gone = [{"other": at("Patient/b"), "type": "replaced-by"}]
    facts, balance = read(tmp_path, patient("a", link=gone), patient("b"), glucose(at("Patient/a"), 1))
    assert measured(facts) == [("b", 1)] and "a" not in {fact.person for fact in facts}
    lost = [{"other": at("Patient/z"), "type": "replaced-by"}]
    facts, balance = read(tmp_path, patient("a", link=lost), patient("b"), glucose(at("Patient/a"), 1))
    assert not measured(facts) and sum(reasons(balance).values()) == 1


def certain(code: str) -> dict[str, Any]:
    address = "http://fhir.de/StructureDefinition/icd-10-gm-diagnosesicherheit"
    extension = [{"url": address, "valueCoding": {"code": code}}]
    return {"code": {"coding": [{"system": GM, "code": "E11.90", "extension": extension}]}}


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, True),
        (certain("G"), True),
        *((certain(code), False) for code in "AVZ"),
        *(
            ({"verificationStatus": concept("v", code)}, code == "confirmed")
            for code in ("confirmed", "unconfirmed", "provisional", "differential", "refuted", "entered-in-error")
        ),
    ],
)
def test_a_diagnosis_counts_only_if_it_is_confirmed(tmp_path: Path, more: dict[str, Any], counts: bool) -> None:
    facts, balance = read(tmp_path, patient("a"), ill("Patient/a", GM, "E11.90") | more)
    assert (DIABETES in {fact.column for fact in facts}) is counts
    assert sum(reasons(balance, "Condition").values()) == (not counts)


def test_the_order_of_codings_changes_no_column(tmp_path: Path) -> None:
    codings = [{"system": "https://lab.example.org", "code": "GLU"}, {"system": LOINC, "code": "2345-7"}]
    both = [glucose(at("Patient/a"), 1, code={"coding": each}) for each in (codings, codings[::-1])]
    facts, _balance = read(tmp_path, patient("a"), *both)
    assert measured(facts) == [("a", 1), ("a", 1)]
    chapters = [{"system": GM, "code": "I10"}, {"system": "http://snomed.info/sct", "code": "38341003"}]
    for each in (chapters, chapters[::-1]):
        facts, _balance = read(tmp_path, patient("a"), ill("Patient/a", GM, "") | {"code": {"coding": each}})
        assert [fact.column for fact in facts if fact.column.startswith("condition")] == ["condition: circulatory"]


def test_limits_versions_and_deleted_resources_are_left_out(tmp_path: Path) -> None:
    low = glucose(at("Patient/a"), 5)
    low["valueQuantity"]["comparator"] = "<"
    old, new = (glucose(at("Patient/a"), value, id="o", meta={"versionId": str(value)}) for value in (9, 10))
    facts, balance = read(tmp_path, patient("a"), low, new, old, glucose(at("Patient/a"), 3, focus=[at("Device/1")]))
    assert measured(facts) == [("a", 10)] and sum(reasons(balance).values()) == 3
    unclear = [glucose(at("Patient/a"), value, id="o") for value in (1, 2)]
    facts, balance = read(tmp_path, patient("a"), *unclear)
    assert not measured(facts) and sum(reasons(balance).values()) == 2
    deleted = {"request": {"method": "DELETE", "url": "Observation/o"}}
    entries = [{"resource": patient("a")}, deleted, {"resource": unclear[0]}]
    facts, balance = read(tmp_path, *entries, bundle={"type": "history"})
    assert not measured(facts) and sum(reasons(balance).values()) == 2


def test_one_page_of_a_search_is_refused(tmp_path: Path) -> None:
    entries = [{"resource": patient("a"), "search": {"mode": "match"}}]
    link = {"link": [{"relation": "next", "url": f"{SERVER}?page=2"}]}
    for page in ({"type": "searchset", **link}, {"type": "searchset", "total": 2}):
        with pytest.raises(DataError, match="The file contains only some pages of a search"):
            read(tmp_path, *entries, bundle=page)
    assert read(tmp_path, *entries, bundle={"type": "searchset", "total": 1})[0]


FILES = {
    "fhir-no-reference.ndjson": [("p1", 90), ("p2", 401)],
    "fhir-no-reference-bundle.json": [("p1", 90), ("p2", 401)],
    "fhir-two-codings.ndjson": [("p1", 90), ("p2", 180)],
    "fhir-references.ndjson": [("p1", "yes"), ("p2", "yes"), ("p3", "yes")],
    "fhir-logical-reference.ndjson": [("p2", "yes")],
    "fhir-conditional-reference.ndjson": [("p2", "yes")],
    "fhir-excluded-diagnosis.ndjson": [("p1", "yes")],
    "fhir-key-order.ndjson": [],
    "fhir.ndjson.gz": [],
    "fhir-ds-store.zip": [],
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_hospital_is_recognised_and_attributed(name: str) -> None:
    balance = Balance()
    assert format_of(FIELD / name) == "FHIR"
    facts = list(fhir_facts(FIELD / name, balance))
    balance.check()
    found = [(fact.person, fact.value) for fact in facts if fact.column in (DIABETES, "2345-7 [mg/dL]")]
    assert found == FILES[name] and {fact.person for fact in facts}


TABLES = {
    "omop-quote.zip": (["1", "2"], 0),
    "omop-quote-in-rows.zip": (["1", "2", "3", "4", "5", "6"], 0),
    "omop-comma.zip": (["1", "2"], 1),
    "omop-short-row.zip": (["1"], 1),
    "omop-unmapped-measurements.zip": ([], 3),
    "omop-unmapped-conditions.zip": ([], 2),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_an_extract_is_used_or_left_out_with_a_reason(name: str) -> None:
    balance = Balance()
    facts = list(omop_facts(FIELD / name, balance))
    balance.check()
    owners, left_out = TABLES[name]
    assert [fact.person for fact in facts if fact.moment] == owners
    assert balance.left_out == left_out and not any(fact.column in ("0", "condition: 0") for fact in facts)


def test_concepts_are_read_from_the_vocabulary(tmp_path: Path) -> None:
    path, balance = tmp_path / "omop.zip", Balance()
    tables = {
        "person.csv": "person_id,gender_concept_id,year_of_birth,month_of_birth,day_of_birth\n1.0,0,1960,,5\n",
        "condition_occurrence.csv": "person_id,condition_concept_id,condition_start_date,condition_source_concept_id"
        ",condition_source_value\n1,0,2020-01-01,44,V45\n1,0,2020-01-01,45,V45\n,7,2020-01-01,0,\n",
        "measurement.csv": "person_id,measurement_concept_id,measurement_date,value_as_number,operator_concept_id\n"
        "1,9,2020-01-01,5,4171756\n1,9,2020-01-01,6,4172703\n",
        "concept.csv": "concept_id\tvocabulary_id\tconcept_code\n44\tICD9CM\tV45\n45\tICD10CM\tV45\n9\tLocal\tX\n",
        "drug_exposure.csv": "person_id\n1\n",
    }
    path.write_bytes(zipped(tables))
    facts = [(fact.column, fact.value) for fact in omop_facts(path, balance)]
    balance.check()
    assert facts == [
        ("born", "1960-07-01"),
        ("X (Local)", "6"),
        ("condition: supplementary factors", "yes"),
        ("condition: external causes", "yes"),
    ]
    assert {name: sum(each.count for each in part.left_out.values()) for name, part in balance.parts.items()} == {
        "concept": 0, "person": 0, "measurement": 1, "condition_occurrence": 1, "drug_exposure.csv": 1,
    }  # fmt: skip
