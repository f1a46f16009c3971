"""Record letters that were returned as undeliverable."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0005_canonical_pseudonyms"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.AddField(
            "invitation",
            "returned_at",
            models.DateTimeField(help_text="When its letter was marked as undeliverable.", null=True),
        ),
        migrations.AddField(
            "invitation",
            "returned_by",
            models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
    ]
