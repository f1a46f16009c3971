"""Pseudonyms of holders: looked up by their one spelling, and after an erasure by a keyed commitment to it.

Whoever had their records erased keeps their account: what was spent on them is spent, also when they come back under
the same pseudonym. So the pseudonym gives way to its HMAC under a key of the study's own, which lies in private storage
and not in the database: whoever has the database alone cannot try pseudonyms. With the last private record of a study
its key is deleted, and nobody can.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.distinct import are_among, distinct
from common.identities import (
    ERASED,
    PseudonymError,
    canonical,
    former_spellings,
    look_alikes,
    resemblance,
    spelling,
)
from common.sentences import Sentence
from consent.models import DataHolder, Study

_AT_ONCE = 2000
_HASHED_AT_ONCE = 10_000


def _key_name(study_id: int) -> str:
    return f"commitments/{study_id}.npz"


def _key(study: Study) -> bytes:
    try:
        return arrays_load(_key_name(study.pk), "key")["key"].tobytes()
    except FileNotFoundError:
        raise ValidationError(
            _(
                "The key to the pseudonyms of people whose records were erased is missing from private storage. "
                "Without it, people who come back look like new people and would be promised too much. Restore the "
                "file."
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
        yield ERASED + hmac.new(key, pseudonym.encode(), hashlib.sha256).hexdigest()


def holders_by_pseudonym(study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Ids of the holders of a study by the pseudonym that was asked for; who is not there is left out.

    A pseudonym that was registered exactly like this comes first: it may be older than the rules of spelling.

    Raises:
        ValidationError: someone's records were erased, and the key to their pseudonym is missing.
    """
    names = list(dict.fromkeys(pseudonyms))
    ids = _ids(study, names)
    spelled = {name: spelling(name) for name in names if name not in ids}
    known = _ids(study, list(dict.fromkeys(each for name, each in spelled.items() if each != name)))
    ids |= {name: known[each] for name, each in spelled.items() if each in known}
    unknown = {name: each for name, each in spelled.items() if name not in ids}
    if unknown and not study.expired_at and DataHolder.objects.filter(study=study, erased_at__isnull=False).exists():
        pairs = [(former, name) for name, each in unknown.items() for former in {name, *former_spellings(each)}]
        committed = dict(zip(commitment(study, (former for former, _name in pairs)), pairs, strict=True))
        ids |= {committed[digest][1]: pk for digest, pk in _ids(study, list(committed)).items()}
    return ids


def holder_by_pseudonym(study: Study, pseudonym: str) -> DataHolder | None:
    """The holder of a study with this pseudonym, or None."""
    pk = holders_by_pseudonym(study, [pseudonym]).get(pseudonym)
    return None if pk is None else DataHolder.objects.get(pk=pk)


def holder_named(study: Study, pseudonym: str) -> DataHolder:
    """Return the holder of a study that a typed pseudonym names.

    Raises:
        ValidationError: the pseudonym is invalid, or unknown in the study.
    """
    holder = holder_by_pseudonym(study, pseudonym)
    if holder is None:
        raise ValidationError({"pseudonym": unknown_message(pseudonym)})
    return holder


def look_alikes_in(study: Study, pseudonyms: Collection[str]) -> list[tuple[str, ...]]:
    """Return groups of pseudonyms that look alike, each with one that would be registered for a new person.

    The others of a group are in the list as well, or registered already. Of millions of pseudonyms only hashes are
    held in memory, and those names that look like others.
    """
    registered = DataHolder.objects.filter(study=study, erased_at=None).order_by().values_list("pseudonym", flat=True)
    looks = _looks_shared(study, pseudonyms, registered)
    if not looks:
        return []
    pairs = ((name, spelling(name)) for name in pseudonyms)
    names = {name: spelled for name, spelled in pairs if hash(resemblance(spelled)) in looks}
    known = holders_by_pseudonym(study, names)
    new = {spelled for name, spelled in names.items() if name not in known}
    return look_alikes(new, chain(names.values(), registered.iterator(chunk_size=10_000)))


def _looks_shared(study: Study, pseudonyms: Collection[str], registered: QuerySet[DataHolder, str]) -> set[int]:
    """Return hashes of the `resemblance` that different pseudonyms, one of them new, have in common."""
    names, looks = np.empty((2, len(pseudonyms)), np.int64)
    is_new, count, rest = np.empty(len(pseudonyms), bool), 0, iter(pseudonyms)
    while some := list(dict.fromkeys(islice(rest, _HASHED_AT_ONCE))):
        known = holders_by_pseudonym(study, some)
        spelled, part = [spelling(name) for name in some], slice(count, count + len(some))
        names[part], looks[part] = list(map(hash, spelled)), _looks(spelled)
        is_new[part] = [name not in known for name in some]
        count += len(some)
    names, looks = names[:count], looks[:count]
    new = distinct(looks[is_new[:count]])
    if not len(new):
        return set()
    shared, rest = set(), registered.iterator(chunk_size=10_000)
    while some := list(islice(rest, _HASHED_AT_ONCE)):
        others = _looks(some)
        shared.update(others[are_among(others, new)].tolist())  # they have other names: the new ones are not registered
    order = np.argsort(looks)
    names, looks = names[order], looks[order]
    differ = looks[1:][(looks[1:] == looks[:-1]) & (names[1:] != names[:-1])]
    return shared.union(differ[are_among(differ, new)].tolist())


def _looks(names: Sequence[str]) -> NDArray[np.int64]:
    """Return (N,) hashes of the `resemblance` of pseudonyms."""
    return np.array([hash(resemblance(name)) for name in names], np.int64)


def look_alikes_said(groups: Sequence[tuple[str, ...]], most: int = 20) -> list[str]:
    """Name groups of pseudonyms that look alike, a line for each."""
    lines = [", ".join(_("“%(name)s”") % {"name": name} for name in group) for group in groups[:most]]
    rest = len(groups) - len(lines)
    return [*lines, *([_("And %(rest)d more.") % {"rest": rest}] if rest else [])]


def unknown_message(pseudonym: str) -> str:
    """Say why no holder of a study is found by a pseudonym."""
    return spelling_fault(pseudonym) or _("This study has no such pseudonym. Check the spelling.")


def spelling_fault(pseudonym: str) -> str:
    """Return why a pseudonym is invalid (empty if it is valid)."""
    try:
        canonical(pseudonym)
    except PseudonymError as error:
        return " ".join(
            _(each.template) % each.values if isinstance(each, Sentence) else _(each)
            for each in (error.problem, error.remedy)
        )
    return ""


def _ids(study: Study, names: list[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    if len(names) > _AT_ONCE and not DataHolder.objects.filter(study=study).exists():
        return ids
    names = [name for name in names if "\0" not in name]  # PostgreSQL takes no text with a zero character
    for start in range(0, len(names), _AT_ONCE):
        holders = DataHolder.objects.filter(study=study, pseudonym__in=names[start : start + _AT_ONCE])
        ids.update(holders.order_by().values_list("pseudonym", "pk"))
    return ids
