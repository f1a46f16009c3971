"""What models of configuration and of acts share: which fields are in the chains of changes, and who acted."""

from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.utils.translation import gettext as _


class Recorded(models.Model):
    """Abstract model of a study's configuration: every change of a row is appended to a chain of changes.

    Each field but the key and the study is in exactly one of the three lists. :mod:`consent.services.changes` records
    the changes, and compares today's rows with the record.
    """

    #: Fields whose values before and after each change are in :class:`consent.models.ConfigurationChange`.
    open_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that concern a person or hold a secret: of their values :class:`consent.models.SealedChange` has digests.
    sealed_fields: ClassVar[tuple[str, ...]] = ()
    #: Fields that change while the site works, or that follow from other records.
    working_fields: ClassVar[tuple[str, ...]] = ()
    #: Texts that the site itself writes into fields which are else in people's words; pages translate them.
    own_words: ClassVar[tuple[str, ...]] = ()

    class Meta:
        abstract = True


def recorded_models() -> list[type[Recorded]]:
    return [model for model in apps.get_models() if issubclass(model, Recorded)]


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
