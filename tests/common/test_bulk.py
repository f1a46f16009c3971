"""Rows inserted at once, on the database that DATABASE_URL names: run the suite a second time for the other one."""

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from common.bulk import rows_insert

pytestmark = [pytest.mark.django_db, pytest.mark.both]


@pytest.mark.parametrize("count", [1, 3])
@isolate_apps("consent")
def test_any_name_of_a_table_or_column_is_taken_as_a_name(count: int) -> None:
    """A word of SQL, and capital letters, mean nothing else; one row and several are inserted in different ways."""

    class Word(models.Model):
        limit = models.IntegerField()
        value = models.TextField(db_column="Order")

        class Meta:
            app_label = "consent"
            db_table = "group"

        def __str__(self) -> str:
            return self.value

    key = "serial" if connection.vendor == "postgresql" else "integer"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE TABLE "group" ("id" {key} PRIMARY KEY, "limit" integer, "Order" text)')
    rows_insert([Word(limit=row, value=f"row {row}") for row in range(count)])
    stored = list(Word.objects.order_by("limit").values_list("limit", "value"))
    assert stored == [(row, f"row {row}") for row in range(count)]
