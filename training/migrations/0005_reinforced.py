"""Add reinforced labels, which a student predicted and teachers did not contradict."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0004_balance_of_a_file")]

    operations = [
        migrations.AddField("query", "reinforced", models.BooleanField(default=False)),
        migrations.AddField("run", "reinforced", models.PositiveIntegerField(default=0)),
    ]
