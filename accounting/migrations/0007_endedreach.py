import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounting", "0006_model_stages"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="EndedReach",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="ended_reach",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("mu_squared", models.FloatField(default=0.0)),
            ],
            options={
                "verbose_name": "reach of ended studies",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("mu_squared__gte", 0)), name="ended_reach_is_not_negative"
                    )
                ],
            },
        ),
    ]
