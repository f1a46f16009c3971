"""Data holders: registered, and linked to accounts; the end of their invitations."""

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from common.identities import spelling
from consent.models import DataHolder, Invitation, Mail, Study
from consent.pseudonyms import holders_by_pseudonym, spelling_fault
from consent.services.addresses import addresses_forget
from consent.services.changes import changes_recorded
from consent.services.studies import study_open_check

_AT_ONCE = 500


@transaction.atomic
def holders_register(*, study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Register a holder for every pseudonym that has none, under its canonical spelling.

    Whoever had their records erased is found by the commitment to their pseudonym, and keeps their account.

    Returns:
        The holder id of every pseudonym, as it was given.

    Raises:
        ValidationError: the study is closed, the key to erased pseudonyms is missing, or pseudonyms that nobody can
            have.
    """
    study_open_check(study)
    pseudonyms = list(dict.fromkeys(pseudonyms))
    known = holders_by_pseudonym(study, pseudonyms)
    names = [pseudonym for pseudonym in pseudonyms if pseudonym not in known]
    if faults := [fault for name in names if (fault := spelling_fault(name))]:
        raise ValidationError(faults)
    new = (DataHolder(study_id=study.pk, pseudonym=name) for name in dict.fromkeys(map(spelling, names)))
    DataHolder.objects.bulk_create(new, batch_size=2000, ignore_conflicts=True)
    return known | holders_by_pseudonym(study, names)


@transaction.atomic
def holder_link(
    *, holder: DataHolder, user: AbstractBaseUser | None, acting_user: AbstractBaseUser | None = None
) -> DataHolder:
    """Link a holder to the account that decides for them, or to none any more, on record.

    Mails go to the account from then on, a reminder that they asked for, too: an address that they left is deleted.

    Args:
        holder: the holder.
        user: the account, or None.
        acting_user: who of the staff links it; None where the holder does.

    Raises:
        ValidationError: the account already decides for another holder of the study.
    """
    linked = user.pk if user else None
    if holder.user_id != linked:
        holder.linked_at = timezone.now() if user else None
    holder.user_id = linked
    holder.full_clean()
    with changes_recorded([holder], acting_user=acting_user):
        holder.save()
    if linked is not None:
        waiting = Mail.objects.filter(address__holder=holder, state=Mail.State.WAITING)
        waiting.exclude(kind="address_left").update(address=None, user_id=linked)
        addresses_forget(holders=[holder.pk])
    return holder


@transaction.atomic
def invitations_end(
    *, holders: Sequence[int], acting_user: AbstractBaseUser | None, account: AbstractBaseUser | None = None
) -> None:
    """End the valid invitations of holders of one study, on record.

    Args:
        holders: ids of the holders.
        acting_user: who of the staff ends them; None at the command line, for a date, and where the holder does.
        account: the holder's own, which has proven that it works.
    """
    by = account or acting_user
    for start in range(0, len(holders), _AT_ONCE):
        valid = Invitation.objects.filter(holder__in=holders[start : start + _AT_ONCE], revoked_at=None)
        with changes_recorded(valid, acting_user=acting_user):
            valid.update(revoked_at=timezone.now(), revoked_by=by.pk if by else None)
