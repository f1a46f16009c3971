"""The most records of one person that a private dataset takes; earlier datasets took all."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0013_second_person_of_a_run"),
    ]

    operations = [
        migrations.AddField(
            model_name="dataset",
            name="most_records",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Records of one holder that it took at most, public; null where it took all, as it once was.",
                null=True,
            ),
        ),
    ]
