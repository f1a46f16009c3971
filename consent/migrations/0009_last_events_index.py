"""The index over each holder's last event holds all that says who takes part and how."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0008_level_access")]

    operations = [
        migrations.RemoveIndex(model_name="consentevent", name="consent_event_latest"),
        migrations.AddIndex(
            model_name="consentevent",
            index=models.Index(
                fields=["holder", "-sequence"],
                include=("study", "kind", "level", "form", "policy", "recorded_at"),
                name="consent_event_last",
            ),
        ),
    ]
