"""Record at a site that the hub of a run has withdrawn a model or table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0002_requesters")]

    operations = [
        migrations.AddField("jointrun", "withdrawn", models.JSONField(blank=True, default=dict)),
    ]
