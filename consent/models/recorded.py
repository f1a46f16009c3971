"""Base class of configuration models, which lists the recorded fields; model fields for the user who acted."""

from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.utils.translation import gettext as _


class Recorded(models.Model):
    """Abstract model for a study's configuration; every change of a row is appended to a chain of changes.

    Each field except the key and the study is in exactly one of the three lists. :mod:`consent.services.changes`
    records the changes, and compares the current rows with the recorded changes.
    """

    #: Fields whose values before and after each change are stored in :class:`consent.models.ConfigurationChange`.
    open_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that concern a person or contain a secret; :class:`consent.models.SealedChange` stores digests of their
    #: values.
    sealed_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that change in normal operation, or that can be derived from other records.
    working_fields: ClassVar[tuple[str, ...]] = ()
    #: Strings that the site writes into fields that otherwise contain people's words; pages translate these strings.
    own_words: ClassVar[tuple[str, ...]] = ()

    class Meta:
        abstract = True


def recorded_models() -> list[type[Recorded]]:
    return [model for model in apps.get_models() if issubclass(model, Recorded)]


def actor(**kwargs: Any) -> models.ForeignKey:
    """Return a foreign key to the user who acted, without a database constraint, because records outlive accounts."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **kwargs
    )


def actor_or_null(**kwargs: Any) -> models.ForeignKey:
    """Return a foreign key to the user who acted. It is empty after the account has been deleted."""
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", **kwargs)


def actor_name(row: models.Model, field: str) -> str:
    """Return the name of the user who acted, even if their account has been deleted; empty if no user acted."""
    try:
        person = getattr(row, field)
    except ObjectDoesNotExist:
        return _("deleted account")
    return "" if person is None else str(person)
