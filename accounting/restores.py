"""Restored databases: a study stays locked until its chains are those of the journal, or the difference is charged."""

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from common.append_only import chained_models
from consent.models import Study


def missing_rows(study: Study) -> dict[str, int]:
    """Chain → how many rows the journal knows that the database has lost; a chain with another past counts as one.

    Empty where the database is at least as new as the journal.
    """
    missing = {model._meta.label_lower: model.rows_missing(study.pk) for model in chained_models()}
    return {chain: rows for chain, rows in missing.items() if rows}


def lock_check(study: Study) -> None:
    """Raise ValidationError where the database of a study is older than the journal: nothing may be spent then."""
    if missing_rows(study):
        raise ValidationError(
            _(
                "This study is locked: its database was restored from a backup and has forgotten what was released, or "
                "who withdrew, since. An administrator settles that with manage.py settle_restore."
            )
        )
