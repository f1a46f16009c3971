"""Add the dataset of labelled public rows that a run's student learns from."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0005_reinforced")]

    operations = [
        migrations.AddField(
            "run",
            "labelled_dataset",
            models.ForeignKey(
                "training.Dataset", blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+"
            ),
        ),
    ]
