"""The account of what became of each row of the file that a dataset came from."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0003_withdrawn_at_the_hub"),
    ]

    operations = [
        migrations.AddField(
            model_name="dataset",
            name="balance",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
