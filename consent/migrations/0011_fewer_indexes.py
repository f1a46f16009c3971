"""Indexes that others begin with only slowed writing down."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("consent", "0010_latest_invitations"),
    ]

    operations = [
        migrations.AlterField(
            model_name="consentevent",
            name="holder",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="consent_events",
                to="consent.dataholder",
            ),
        ),
        migrations.AlterField(
            model_name="consentevent",
            name="study",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="consent_events",
                to="consent.study",
            ),
        ),
    ]
