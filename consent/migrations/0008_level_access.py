"""Every look of staff at one person's choice is on record."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0007_study_languages"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="LevelAccess",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.PositiveBigIntegerField(editable=False)),
                ("previous_hash", models.CharField(editable=False, max_length=64)),
                ("hash", models.CharField(editable=False, max_length=64)),
                ("reason", models.CharField(max_length=500)),
                ("seen_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "holder",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="consent.dataholder"
                    ),
                ),
                (
                    "seen_by",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "study",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="level_accesses", to="consent.study"
                    ),
                ),
            ],
            options={
                "verbose_name": "look at a holder's choice",
                "verbose_name_plural": "looks at holders' choices",
                "ordering": ["sequence"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(fields=("study", "sequence"), name="level_access_sequence_is_unique")
                ],
            },
        ),
    ]
