"""An index over each holder's history, read in the order of holders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounting", "0003_reservations")]

    operations = [
        migrations.AddIndex(
            model_name="holderspending",
            index=models.Index(fields=["holder"], include=("history",), name="holder_spending_history"),
        ),
    ]
