"""What the hub of a run has withdrawn, at its sites."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0002_requesters")]

    operations = [
        migrations.AddField("jointrun", "withdrawn", models.JSONField(blank=True, default=dict)),
    ]
