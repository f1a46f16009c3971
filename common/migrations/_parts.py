"""Columns and constraints used in migrations; like migrations, they must never be changed."""

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

ID = ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False))
#: Columns of :class:`common.append_only.Chained`.
CHAINED = (
    ("sequence", models.PositiveBigIntegerField()),
    ("previous_hash", models.CharField(max_length=64)),
    ("hash", models.CharField(max_length=64)),
)


def foreign(name: str, to: str, on_delete: Any = models.PROTECT, *, related_name: str = "+", **options: Any) -> Any:
    """Return a foreign key with its name."""
    return name, models.ForeignKey(to, on_delete, related_name=related_name, **options)


def actor(name: str, **options: Any) -> Any:
    """Return a foreign key to the user who acted, without a database constraint because records outlive accounts."""
    return foreign(name, settings.AUTH_USER_MODEL, models.DO_NOTHING, db_constraint=False, **options)


def moment(name: str) -> Any:
    return name, models.DateTimeField(default=timezone.now)


def unique(name: str, *fields: str, **options: Any) -> models.UniqueConstraint:
    return models.UniqueConstraint(fields=fields, name=name, **options)


def check(name: str, condition: models.Q) -> models.CheckConstraint:
    return models.CheckConstraint(condition=condition, name=name)
