"""Curves as doubles instead of JSON: the same numbers, so that the hashes of the ledger stay as they are.

There is no way back; a backup from before keeps the JSON.
"""

import json

import numpy as np
from django.db import migrations

from accounting.curves import STORED, CurveField

POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.ipate_curve(curve jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT coalesce(string_agg(float8send(number::float8), ''::bytea ORDER BY place), ''::bytea)
    FROM jsonb_array_elements_text(curve) WITH ORDINALITY AS entry(number, place)
$$
"""


def _curve(text):
    return None if text is None else np.asarray(json.loads(text), dtype=STORED).tobytes()


class JsonToCurve(migrations.AlterField):
    """The tables are written anew as a whole, so that no trigger has to be off: SQLite's return after ``migrate``."""

    reversible = False

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        connection = schema_editor.connection
        table = to_state.apps.get_model(app_label, self.model_name)._meta.db_table
        if connection.vendor == "postgresql":
            schema_editor.execute(POSTGRESQL_FUNCTION)
            schema_editor.execute(
                f"ALTER TABLE {table} ALTER COLUMN {self.name} TYPE bytea USING pg_temp.ipate_curve({self.name})"
            )
        else:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            connection.connection.create_function("ipate_curve", 1, _curve)
            schema_editor.execute(f"UPDATE {table} SET {self.name} = ipate_curve({self.name})")


class Migration(migrations.Migration):
    dependencies = [("accounting", "0005_one_account_of_a_kind")]

    operations = [
        JsonToCurve(
            "runaccount", "orders", CurveField(help_text="Rényi orders α at which every curve of this account is kept.")
        ),
        JsonToCurve("privacygroup", "past_rdp", CurveField()),
        JsonToCurve("privacygroup", "spent_rdp", CurveField()),
        JsonToCurve("privacygroup", "published_rdp", CurveField()),
        JsonToCurve("privacygroup", "reserved_rdp", CurveField(blank=True, null=True)),
        JsonToCurve("ledgerentry", "orders", CurveField()),
        JsonToCurve(
            "ledgerentry",
            "rdp",
            CurveField(help_text="The cost as a curve over the orders. A secret where it depends on the votes."),
        ),
        JsonToCurve(
            "ledgerentry",
            "published_rdp",
            CurveField(help_text="The data-independent bound on the same release."),
        ),
    ]
