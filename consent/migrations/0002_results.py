"""Add the kind of disposal for models and tables that were withdrawn."""

from django.db import migrations
from django.db.models import CheckConstraint, Q

_NAME = "disposal_kind_is_known_and_says_of_whom"


class Migration(migrations.Migration):
    dependencies = [("consent", "0001_initial")]

    operations = [
        migrations.RemoveConstraint("disposal", _NAME),
        migrations.AddConstraint(
            "disposal",
            CheckConstraint(
                condition=Q(holder__isnull=False, kind__in=["asked", "erased", "kept"])
                | Q(holder__isnull=True, kind__in=["dataset", "encoder", "result", "closed", "expired"]),
                name=_NAME,
            ),
        ),
    ]
