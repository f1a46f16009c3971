"""Store how many rows of a dataset's source file were used or left out."""

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
