"""Data holders: registered, and linked to accounts."""

from collections.abc import Iterable

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from consent.models import DataHolder, Study
from consent.pseudonyms import holders_found
from consent.services.studies import study_open_check


@transaction.atomic
def holders_register(*, study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Register a holder for every pseudonym that has none.

    Whoever had their records erased is found by the commitment to their pseudonym, and keeps their account.

    Returns:
        The holder id of every pseudonym.

    Raises:
        ValidationError: the study is closed, or the key to erased pseudonyms is missing.
    """
    study_open_check(study)
    pseudonyms = list(dict.fromkeys(pseudonyms))
    known = holders_found(study, pseudonyms)
    names = [pseudonym for pseudonym in pseudonyms if pseudonym not in known]
    new = (DataHolder(study_id=study.pk, pseudonym=name) for name in names)
    DataHolder.objects.bulk_create(new, batch_size=2000, ignore_conflicts=True)
    return known | holders_found(study, names)


@transaction.atomic
def holder_link(*, holder: DataHolder, user: AbstractBaseUser | None) -> DataHolder:
    """Link a holder to the account that decides for them, or to none any more.

    Raises:
        ValidationError: the account already decides for another holder of the study.
    """
    linked = user.pk if user else None
    if holder.user_id != linked:
        holder.linked_at = timezone.now() if user else None
    holder.user_id = linked
    holder.full_clean()
    holder.save()
    return holder
