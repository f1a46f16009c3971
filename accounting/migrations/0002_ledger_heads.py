"""The end of every study's ledger is kept and signed."""

from importlib import import_module

from django.db import migrations

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def sign(apps, schema_editor):
    rows = apps.get_model("accounting", "ledgerentry").objects.order_by("sequence").iterator()
    _heads_sign(apps, {(row.study_id, "accounting.ledgerentry"): (row.sequence, row.hash) for row in rows})


class Migration(migrations.Migration):
    dependencies = [("accounting", "0001_initial"), ("consent", "0002_chain_heads")]

    operations = [migrations.RunPython(sign, migrations.RunPython.noop)]
