"""Create the table of requests that must not be handled twice."""

from django.db import migrations, models

from common.migrations._parts import ID


class Migration(migrations.Migration):
    dependencies = [("common", "0001_initial")]

    operations = [
        migrations.CreateModel(
            "HandledRequest",
            [
                ID,
                ("key", models.CharField(max_length=64, unique=True)),
                ("digest", models.CharField(max_length=64)),
                ("answer", models.BinaryField()),
                ("expires_at", models.DateTimeField(db_index=True)),
            ],
            options={"verbose_name_plural": "handled requests"},
        ),
    ]
