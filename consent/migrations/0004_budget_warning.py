"""Add the remaining part of a group's budget below which a study's operators are warned."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0003_replayed")]

    operations = [
        migrations.AddField(
            "study",
            "budget_warning",
            models.FloatField(blank=True, null=True, validators=[MinValueValidator(0), MaxValueValidator(1)]),
        ),
    ]
