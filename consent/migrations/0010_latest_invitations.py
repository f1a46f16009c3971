"""The page of invitations begins with the latest: of many, it need not sort them all."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0009_last_events_index")]

    operations = [
        migrations.AddIndex(
            model_name="invitation",
            index=models.Index(fields=["study", "-created_at", "-id"], name="invitation_latest"),
        ),
    ]
