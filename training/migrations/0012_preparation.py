"""Teachers are prepared by a worker: a run has a status for that, and says how far it is."""

from typing import Any

from django.db import migrations, models


def prepared_before(apps: Any, _editor: Any) -> None:
    """Runs whose teachers are known were prepared at their approval."""
    runs = apps.get_model("training", "Run").objects
    runs.filter(chunks__isnull=False).update(prepared=1.0)


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0011_imports"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="prepared",
            field=models.FloatField(
                default=0.0, editable=False, help_text="How much of the preparation of its people is done, in tenths."
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="status",
            field=models.CharField(
                choices=[
                    ("draft", "draft"),
                    ("approved", "approved"),
                    ("preparing", "preparing the people"),
                    ("training", "training teachers"),
                    ("voting", "voting"),
                    ("asking", "asking the holders"),
                    ("learning", "learning by private gradient steps"),
                    ("student", "training the student"),
                    ("finished", "finished"),
                    ("failed", "failed"),
                    ("cancelled", "cancelled"),
                    ("withdrawn", "withdrawn"),
                ],
                default="draft",
                max_length=10,
            ),
        ),
        migrations.RunPython(prepared_before, migrations.RunPython.noop, elidable=True),
    ]
