"""When a circumstance was recorded again that a restored database had forgotten."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0002_results")]

    operations = [
        migrations.AddField("circumstance", "replayed_at", models.DateTimeField(blank=True, null=True)),
    ]
