"""The lock of a study."""

from consent.models import Study


def study_lock(study_id: int) -> Study:
    """Lock a study: consent events, approvals and charges of one study happen one after the other.

    Call it first in a transaction. On PostgreSQL it is the study's row lock; on SQLite the immediate transaction
    (see the settings) already holds the whole database.
    """
    return Study.objects.select_for_update().get(pk=study_id)
