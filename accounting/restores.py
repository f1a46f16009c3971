"""Restored databases: a study is locked until its chains match the journal or the difference has been charged."""

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from accounting.caps import SLACKS, slack_of
from accounting.models import Release
from common.append_only import chained_models
from common.journal import head_note, journal_read, pending_confirm
from consent.models import Study

#: Replacement for the hash of rows that the database lacks and whose content is unknown.
UNKNOWN = "unknown"


def missing_rows(study: Study) -> dict[str, int]:
    """Return, for each chain, the number of journal rows missing from the database (1 if the chain diverged).

    The result is empty if the database is at least as new as the journal.
    """
    missing = {model._meta.label_lower: model.rows_missing(study.pk) for model in chained_models()}
    return {chain: rows for chain, rows in missing.items() if rows}


def lock_check(study: Study) -> None:
    """Raise ValidationError if a study's database is older than the journal, because nothing may be spent then."""
    if missing_rows(study):
        raise ValidationError(
            _(
                "This study is locked: its database was restored from a backup and lacks later releases and "
                "withdrawals. An administrator can resolve this with ipate settle_restore."
            )
        )


def journal_distrust(study: Study) -> None:
    """Lock a study that was just restored if its database contains rows that the journal lacks.

    In this case the journal was lost or is older than the backup, so later releases are unknown and may have used all
    of the study's caps. Rehearsals are exempt, because they promise nothing.
    """
    pending_confirm(study.pk)  # it can no longer be checked whether the notes were committed
    noted = journal_read(study.pk)["heads"]
    heads = {model._meta.label_lower: model.head(study.pk).sequence for model in chained_models()}
    if study.rehearsal or all(noted.get(chain, [0])[0] >= sequence for chain, sequence in heads.items()):
        return
    chain = Release._meta.label_lower
    head_note(study.pk, chain, heads[chain] + 1, UNKNOWN, share=1.0, slack=SLACKS * slack_of(study.delta))


def is_distrusted(study: Study) -> bool:
    """Return whether a study is locked because the journal does not show which rows the database lacks."""
    return journal_read(study.pk)["heads"].get(Release._meta.label_lower, [0, ""])[1] == UNKNOWN
