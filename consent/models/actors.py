"""Foreign keys to the accounts of those who acted."""

from typing import Any

from django.conf import settings
from django.db import models


def actor(**kwargs: Any) -> models.ForeignKey:
    """Foreign key to the user who acted. No database constraint: records outlive accounts."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **kwargs
    )


def actor_or_null(**kwargs: Any) -> models.ForeignKey:
    """Foreign key to the user who acted, empty once their account is gone."""
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", **kwargs)
