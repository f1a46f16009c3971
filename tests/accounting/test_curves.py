"""Curves come back from the database as they went in; those that were kept as JSON came over as they were."""

import json
import math
import struct
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState

from accounting.curves import CurveField
from accounting.models import RunAccount
from tests.factories import study_open

#: Numbers that a text, or a database's own idea of numbers, could have changed.
AWKWARD = [0.1, 1 / 3, 5e-324, 1e-7, 2.0, 1e16, 9007199254740993.0, 1.7976931348623157e308, math.pi, -0.0]


def doubles(numbers: list[float]) -> bytes:
    return struct.pack(f">{len(numbers)}d", *numbers)


@pytest.mark.django_db
def test_a_curve_comes_back_bit_by_bit() -> None:
    study = study_open("curves")
    account = RunAccount.objects.create(study=study, run=uuid4(), delta=study.delta, orders=AWKWARD)
    account.refresh_from_db()
    assert doubles(account.orders) == doubles(AWKWARD)
    with connection.cursor() as cursor:
        cursor.execute("SELECT orders FROM accounting_runaccount WHERE id = %s", [account.pk])
        assert bytes(cursor.fetchone()[0]) == doubles(AWKWARD)


@pytest.mark.django_db
@pytest.mark.parametrize("forged", [b"\x00", b"no curve"[:7], doubles([1.0, 2.0])[:-1]])
def test_what_is_no_curve_in_the_database_is_read_as_an_empty_one(forged: bytes) -> None:
    study = study_open("curves")
    account = RunAccount.objects.create(study=study, run=uuid4(), delta=study.delta, orders=AWKWARD)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounting_runaccount SET orders = %s", [forged])
    account.refresh_from_db()
    assert account.orders == []


@pytest.mark.parametrize("value", ["none", [1.0, "two"], [[1.0], [2.0, 3.0]], 4711])
def test_what_is_no_list_of_numbers_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="A curve is a list of numbers"):
        CurveField().clean(value, None)


@pytest.mark.django_db(transaction=True)
def test_curves_that_were_kept_as_json_are_the_same_numbers_after_the_migration() -> None:
    create = migrations.CreateModel(
        "scratch", [("id", models.IntegerField(primary_key=True)), ("curve", models.JSONField(null=True))]
    )
    convert = import_module("accounting.migrations.0006_binary_curves").JsonToCurve(
        "scratch", "curve", CurveField(null=True)
    )
    before, between, after = ProjectState(), ProjectState(), ProjectState()
    create.state_forwards("accounting", between)
    create.state_forwards("accounting", after)
    convert.state_forwards("accounting", after)
    curves = [AWKWARD[:-1], [10**16, 2, 0], [], None]  # PostgreSQL had made integers of whole numbers
    try:
        with connection.schema_editor() as editor:
            create.database_forwards("accounting", editor, before, between)
        for place, curve in enumerate(curves):
            with connection.cursor() as cursor:
                text = None if curve is None else json.dumps(curve)
                cursor.execute("INSERT INTO accounting_scratch (id, curve) VALUES (%s, %s)", [place, text])
        with connection.schema_editor() as editor:
            convert.database_forwards("accounting", editor, between, after)
        rows = after.apps.get_model("accounting", "scratch").objects.order_by("id")
        assert list(rows.values_list("curve", flat=True)) == curves
    finally:
        with connection.schema_editor() as editor:
            editor.execute("DROP TABLE IF EXISTS accounting_scratch")
