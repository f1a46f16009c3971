"""Addresses that holders without an account leave to be told of decisions and news, and their wish for letters.

Nothing but the mail that asks for it goes to an address that is not confirmed. It is deleted by its holder on every
page and from every mail, and by itself once the holder has an account, someone else answers, their records are erased,
or nobody has confirmed it in time.
"""

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from common.jobs import send
from common.models import locked
from common.throttle import Counter, TooManyTriesError, attempt_begin, keyed_hash
from consent.models import DataHolder, HolderAddress, Mail, Study, study_lock
from consent.models.addresses import new_key
from consent.services.changes import changes_recorded

#: So long an address waits for its confirmation.
WAITS = timedelta(days=7)
#: So many confirmations are sent in a day for one holder, and to one address.
_IN_A_DAY = 5


def address_leave(*, holder: DataHolder, email: str) -> HolderAddress:
    """Keep an address to which a holder without an account wishes mails, and send it a mail that asks to confirm it.

    A reminder to decide that they asked for goes to it, in place of an earlier one.

    Raises:
        ValidationError: the holder has an account, or too many such mails were sent in a day.
    """
    email = email.strip().lower()
    subjects = (str(holder.pk), email)
    day = timedelta(days=1)
    try:
        attempt_begin([Counter(keyed_hash("address left", each), _IN_A_DAY, day) for each in subjects])
    except TooManyTriesError as error:
        raise ValidationError(_("Too many confirmation emails were sent. Try again tomorrow.")) from error
    with transaction.atomic():
        reminders = list(Mail.objects.filter(address__holder=holder, kind="decide_later", state=Mail.State.WAITING))
        address = _kept(holder, HolderAddress.Way.MAIL, email)
        for each in reminders:
            each.pk, each.address = None, address
        Mail.objects.bulk_create(reminders)
        Mail.objects.create(address=address, kind="address_left")
        send("consent.tasks.mails_deliver")
    return address


@transaction.atomic
def way_wish(*, holder: DataHolder, way: str) -> HolderAddress:
    """Keep that a holder without an account wishes letters, or no news; an address that they left is deleted.

    Args:
        holder: the holder.
        way: ``LETTER`` or ``NOTHING`` of :class:`consent.models.HolderAddress.Way`.

    Raises:
        ValidationError: the holder has an account.
    """
    return _kept(holder, way, "")


def _kept(holder: DataHolder, way: str, email: str) -> HolderAddress:
    study_lock(holder.study_id)
    if locked(holder).user_id is not None:
        raise ValidationError(_("You have an account, so emails go to its address."))
    addresses_forget(holders=[holder.pk])
    address = HolderAddress(
        study_id=holder.study_id, holder=holder, way=way, email=email, key=new_key(), language=get_language() or ""
    )
    with changes_recorded([address], acting_user=None):
        address.save()
    return address


@transaction.atomic
def address_confirm(*, address: HolderAddress) -> None:
    """Confirm an address for the person who reads its mails, unless it was deleted or confirmed before."""
    waiting = HolderAddress.objects.select_for_update().filter(pk=address.pk, confirmed_at=None)
    if waiting.exists():
        with changes_recorded([address], acting_user=None):
            address.confirmed_at = timezone.now()
            address.save(update_fields=["confirmed_at"])


@transaction.atomic
def addresses_forget(*, holders: Collection[int]) -> None:
    """Delete what holders of one study left, with the mails to it, and log it."""
    rows = HolderAddress.objects.filter(holder__in=list(holders))
    with changes_recorded(rows, acting_user=None):
        rows.delete()


def addresses_sweep(*, study: Study | None = None) -> int:
    """Delete addresses that nobody confirmed in time, and those of whom everything is erased, once they are told so.

    One that was left after the erasure stays: its holder takes part again, or wants to hear of the study.

    Args:
        study: of this study alone; its lock is held.

    Returns:
        The number of addresses.
    """
    waiting = Mail.objects.filter(address=OuterRef("pk"), state=Mail.State.WAITING)
    late = Q(way=HolderAddress.Way.MAIL, confirmed_at=None, left_at__lte=timezone.now() - WAITS)
    over = HolderAddress.objects.filter(late | (Q(holder__erased_at__gte=F("left_at")) & ~Exists(waiting)))
    of_studies: dict[int, list[int]] = defaultdict(list)
    for study_id, holder in (over.filter(study=study) if study else over).values_list("study", "holder"):
        of_studies[study_id].append(holder)
    for holders in of_studies.values():
        addresses_forget(holders=holders)
    return sum(map(len, of_studies.values()))
