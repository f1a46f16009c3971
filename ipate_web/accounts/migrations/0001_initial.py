"""Lists that members of staff save."""

from django.conf import settings
from django.db import migrations, models

from common.migrations._parts import ID, foreign, unique


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("consent", "0001_initial")]

    operations = [
        migrations.CreateModel(
            "SavedList",
            [
                ID,
                foreign("user", settings.AUTH_USER_MODEL, models.CASCADE),
                foreign("study", "consent.study", models.CASCADE),
                ("page", models.CharField(max_length=60)),
                ("name", models.CharField(max_length=60)),
                ("query", models.CharField(max_length=1000)),
            ],
            options={
                "verbose_name": "saved list",
                "verbose_name_plural": "saved lists",
                "ordering": ["name"],
                "constraints": [
                    unique("saved_list_name_is_unique_for_user_and_page", "user", "study", "page", "name"),
                ],
            },
        ),
    ]
