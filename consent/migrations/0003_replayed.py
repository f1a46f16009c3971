"""Time at which a circumstance that a restored database lacked was recorded again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0002_results")]

    operations = [
        migrations.AddField("circumstance", "replayed_at", models.DateTimeField(blank=True, null=True)),
    ]
