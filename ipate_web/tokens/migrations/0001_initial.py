"""Tokens of the API."""

from django.conf import settings
from django.db import migrations, models

from common.migrations._parts import foreign, unique
from ipate_web.tokens.models import every_scope

USER = settings.AUTH_USER_MODEL


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(USER)]

    operations = [
        migrations.CreateModel(
            "ApiToken",
            [
                ("digest", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("token_key", models.CharField(db_index=True, max_length=25)),
                foreign("user", USER, models.CASCADE, related_name="auth_token_set"),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("expiry", models.DateTimeField(blank=True, null=True)),
                ("name", models.CharField(max_length=60)),
                ("scopes", models.JSONField(default=every_scope)),
            ],
            options={
                "verbose_name": "API token",
                "verbose_name_plural": "API tokens",
                "ordering": ["-created"],
                "constraints": [unique("api_token_name_is_unique_for_a_user", "user", "name")],
            },
        ),
    ]
