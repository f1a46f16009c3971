"""Indexes that others begin with only slowed writing down."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounting", "0006_binary_curves"),
        ("consent", "0011_fewer_indexes"),
    ]

    operations = [
        migrations.AlterField(
            model_name="ledgerentry",
            name="group",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="ledger_entries",
                to="accounting.privacygroup",
            ),
        ),
        migrations.AlterField(
            model_name="ledgerentry",
            name="study",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="ledger_entries",
                to="consent.study",
            ),
        ),
    ]
