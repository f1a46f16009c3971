"""Pseudonyms of holders: looked up as they are written, and after an erasure by a keyed commitment to them.

Whoever had their records erased keeps their account: what was spent on them is spent, also when they come back under
the same pseudonym. So the pseudonym gives way to its HMAC under a key of the study's own, which lies in private storage
and not in the database: whoever has the database alone cannot try pseudonyms. With the last private record of a study
its key is deleted, and nobody can.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator

import numpy as np
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from common.artifacts import arrays_delete, arrays_load, arrays_save
from consent.models import DataHolder, Study

_MARK = "erased:"
_AT_ONCE = 2000


def _key_name(study_id: int) -> str:
    return f"commitments/{study_id}.npz"


def _key(study: Study) -> bytes:
    try:
        return arrays_load(_key_name(study.pk), "key")["key"].tobytes()
    except FileNotFoundError:
        raise ValidationError(
            _(
                "The key to the pseudonyms of people whose records were erased is missing from private storage: who "
                "came back could not be told from who is new, and would be promised too much. Restore the file."
            )
        ) from None


def key_make(study: Study) -> None:
    """Make the key of a study that has none; under the study's lock, before the first erasure."""
    if DataHolder.objects.filter(study=study, erased_at__isnull=False).exists():
        return
    key = np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)
    arrays_save(_key_name(study.pk), key=key)


def key_delete(study: Study) -> None:
    """Delete the key for good: from then on no pseudonym leads to an erased holder of the study."""
    arrays_delete(_key_name(study.pk))


def commitment(study: Study, pseudonyms: Iterable[str]) -> Iterator[str]:
    """Commitment to each pseudonym, under the key of its study."""
    key = _key(study)
    for pseudonym in pseudonyms:
        yield _MARK + hmac.new(key, pseudonym.encode(), hashlib.sha256).hexdigest()


def holders_by_pseudonym(study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Ids of the holders of a study by the pseudonym that was asked for; who is not there is left out.

    Raises:
        ValidationError: somebody's records were erased, and the key to their pseudonym is missing.
    """
    names = list(dict.fromkeys(pseudonyms))
    ids = _ids(study, names)
    unknown = [pseudonym for pseudonym in names if pseudonym not in ids]
    if unknown and not study.expired_at and DataHolder.objects.filter(study=study, erased_at__isnull=False).exists():
        committed = dict(zip(commitment(study, unknown), unknown, strict=True))
        ids |= {committed[name]: pk for name, pk in _ids(study, list(committed)).items()}
    return ids


def holder_by_pseudonym(study: Study, pseudonym: str) -> DataHolder | None:
    """The holder of a study with this pseudonym, or None."""
    pk = holders_by_pseudonym(study, [pseudonym]).get(pseudonym)
    return None if pk is None else DataHolder.objects.get(pk=pk)


def _ids(study: Study, names: list[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for start in range(0, len(names), _AT_ONCE):
        holders = DataHolder.objects.filter(study=study, pseudonym__in=names[start : start + _AT_ONCE])
        ids.update(holders.order_by().values_list("pseudonym", "pk"))
    return ids
