"""Rows of configuration: which of their fields are in the chains of changes."""

from typing import ClassVar

from django.apps import apps
from django.db import models


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
