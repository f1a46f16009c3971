"""How many workers died over a chunk of teachers: a run whose teachers kill every worker ends."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0002_reservations")]

    operations = [
        migrations.AddField(
            model_name="teacherchunk",
            name="deaths",
            field=models.PositiveIntegerField(default=0, help_text="How many workers died over it."),
        ),
    ]
