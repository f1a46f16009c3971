"""Foreign keys to the accounts of those who acted."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.utils.translation import gettext as _


def actor(**kwargs: Any) -> models.ForeignKey:
    """Foreign key to the user who acted. No database constraint: records outlive accounts."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **kwargs
    )


def actor_or_null(**kwargs: Any) -> models.ForeignKey:
    """Foreign key to the user who acted, empty once their account is gone."""
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", **kwargs)


def actor_name(row: models.Model, field: str) -> str:
    """Name of whoever acted, also where their account is gone by now; empty where nobody did."""
    try:
        person = getattr(row, field)
    except ObjectDoesNotExist:
        return _("deleted account")
    return "" if person is None else str(person)
