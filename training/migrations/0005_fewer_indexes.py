"""Indexes that others begin with only slowed writing down."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0004_stop_reason_says_more"),
    ]

    operations = [
        migrations.AlterField(
            model_name="query",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="queries", to="training.run"
            ),
        ),
        migrations.AlterField(
            model_name="votebatch",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="batches", to="training.run"
            ),
        ),
    ]
