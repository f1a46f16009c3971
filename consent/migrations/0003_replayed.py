"""Add the time at which a circumstance missing from a restored database was recorded again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0002_results")]

    operations = [
        migrations.AddField("circumstance", "replayed_at", models.DateTimeField(blank=True, null=True)),
    ]
