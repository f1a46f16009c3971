"""Restored data do not disturb rows that are created afterwards."""

import pytest
from django.db import transaction

from consent.models import Study
from tests.factories import holder_create, study_open, user_create
from tests.snapshots import built_once
from tests.test_two_worlds import sequences_begin


@pytest.mark.django_db
def test_new_rows_are_numbered_after_restored_ones() -> None:
    """Some tests reset PostgreSQL's sequences, which no rollback undoes."""

    @built_once
    def study_with_holder() -> Study:
        study = study_open.__wrapped__("restored")
        holder_create(study, user=user_create("first"))
        return study

    sequences_begin()
    with transaction.atomic():
        built = study_with_holder().pk
        transaction.set_rollback(True)
    sequences_begin()
    restored = study_with_holder()
    assert restored.pk == built
    holder_create(restored, "P-2", user_create("second"))
    assert restored.holders.count() == 2
