"""Record of the configuration: every change to a study's rows, with checks that the current rows match the record.

Code that writes a row of a :class:`consent.models.Recorded` model must do so inside :func:`changes_recorded`.
:func:`change_faults` finds changes that bypass it, at an SQL prompt or through ``QuerySet.update``, because then the
value differs from the last recorded value, or the next change does not start from that value.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import SET_NULL, Q, QuerySet
from django.utils import timezone

from common.keys import Purpose, digest, keys_of
from common.row_hashes import canonical
from consent.models import Change, ConfigurationChange, Recorded, SealedChange, Study, recorded_models, study_lock

#: Field → value in JSON form; None for a missing row.
State = dict[str, Any] | None

_AT_ONCE = 500


@contextmanager
def changes_recorded(rows: Iterable[Recorded], *, acting_user: AbstractBaseUser | None) -> Iterator[None]:
    """Record the block's changes to rows of one model and study; the block may save, update, delete or add rows.

    Everything happens in one transaction under the study's lock. Values are read from the database before and after.

    Args:
        rows: the rows that the block changes; unsaved if it adds them.
        acting_user: the user who changes them; None at the command line, for a scheduled change, or if a data holder
            acts.
    """
    rows = list(rows)
    with transaction.atomic():
        if not rows:
            yield
            return
        model = type(rows[0])
        if (known := _study_id(rows[0])) is not None:  # otherwise, the study itself is being added
            study_lock(known)
        before = _states_of(model, [row.pk for row in rows if not row._state.adding])
        yield
        added = {row.pk for row in rows if row.pk is not None and row.pk not in before}  # deleted rows have no key
        after = _states_of(model, [*before, *added])
        study_id = known or rows[0].pk
        for chain, fields in ((ConfigurationChange, model.open_fields), (SealedChange, model.sealed_fields)):
            changed = {}
            for pk in before | after:
                old, new = _differing(_part(before.get(pk), fields), _part(after.get(pk), fields))
                if old != new:
                    changed[pk] = (old, new)
            if chain is SealedChange:
                changed = _sealed_changes(study_id, model, changed)
            now = timezone.now()
            chain.append(
                chain(  # type: ignore[misc]
                    study_id=study_id,
                    model=model._meta.label_lower,
                    row=str(pk),
                    before=old,
                    after=new,
                    changed_by_id=acting_user.pk if acting_user else None,
                    changed_at=now,
                )
                for pk, (old, new) in changed.items()
            )


def _study_id(row: Recorded) -> int | None:
    return row.pk if isinstance(row, Study) else row.study_id  # type: ignore[attr-defined]


def _states(rows: QuerySet[Any]) -> Iterator[tuple[Any, State]]:
    """Yield the keys of rows with the values of their recorded fields in the database."""
    fields = (*rows.model.open_fields, *rows.model.sealed_fields)
    columns = [rows.model._meta.get_field(name).attname for name in fields]
    for pk, *values in rows.order_by("pk").values_list("pk", *columns).iterator(chunk_size=2000):
        yield pk, dict(zip(fields, map(canonical, values), strict=True))


def _states_of(model: type[Recorded], keys: Collection[Any]) -> dict[Any, State]:
    """Return the states of the rows of a model with these keys, as yielded by :func:`_states`."""
    keys = list(keys)
    states: dict[Any, State] = {}
    for start in range(0, len(keys), _AT_ONCE):
        states.update(_states(model._base_manager.filter(pk__in=keys[start : start + _AT_ONCE])))
    return states


def _part(state: State, fields: Sequence[str]) -> State:
    """Return the part of a state that a chain records; None if there is no row or all these fields are empty."""
    part = {name: state[name] for name in fields} if state else {}
    return part if any(value is not None for value in part.values()) else None


def _differing(before: State, after: State) -> tuple[State, State]:
    """Return both states; for a changed row, only the fields that differ."""
    if before is None or after is None:
        return before, after
    names = [name for name in before if before[name] != after[name]]
    return {name: before[name] for name in names}, {name: after[name] for name in names}


# --- Sealed values --------------------------------------------------------------------------------------------------


def _sealed(model: type[Recorded], row: Any, field: str, value: Any, key: str | None = None) -> str | None:
    """Return a keyed digest of a value. Without the signing key, no one can find the value by trying candidates."""
    if value is None:
        return None
    content = json.dumps([model._meta.label_lower, str(row), field, value], sort_keys=True, ensure_ascii=False)
    return digest("consent.services.changes", content, key)


def _is_sealed(state: str | None, model: type[Recorded], row: Any, field: str, value: Any) -> bool:
    """Return whether a digest matches a value under the current signing key or an earlier one."""
    return any(state == _sealed(model, row, field, value, key) for key in keys_of(Purpose.SIGNING))


def _sealed_changes(
    study_id: int, model: type[Recorded], changed: dict[Any, tuple[State, State]]
) -> dict[Any, tuple[State, State]]:
    """Return changes with digests instead of values; the state before a change keeps its recorded digest."""
    recorded: dict[str, dict[str, str | None]] = {}
    keys = [str(pk) for pk, (old, _new) in changed.items() if old is not None]
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        rows = SealedChange.chain(study_id).filter(model=model._meta.label_lower, row__in=some)
        for row, after in rows.values_list("row", "after"):
            recorded.setdefault(row, {}).update(after or {})

    def seal(pk: Any, name: str, value: Any) -> str | None:
        known = recorded.get(str(pk), {}).get(name)
        return known if known and _is_sealed(known, model, pk, name, value) else _sealed(model, pk, name, value)

    def sealed(pk: Any, state: State) -> State:
        return None if state is None else {name: seal(pk, name, value) for name, value in state.items()}

    return {pk: (sealed(pk, old), sealed(pk, new)) for pk, (old, new) in changed.items()}


# --- Deletion of accounts ------------------------------------------------------------------------------------------


def account_forget(user: AbstractBaseUser) -> None:
    """Clear the references to an account that is about to be deleted, and record this."""
    for model in recorded_models():
        for field in model._meta.concrete_fields:
            relation = field.remote_field
            if relation is None or relation.model is not type(user) or relation.on_delete is not SET_NULL:
                continue
            rows = list(model._base_manager.filter(**{field.name: user.pk}).order_by("study", "pk"))
            for study_id in dict.fromkeys(_study_id(row) for row in rows):
                own = [row for row in rows if _study_id(row) == study_id]
                with changes_recorded(own, acting_user=None):
                    model._base_manager.filter(pk__in=[row.pk for row in own]).update(**{field.name: None})


# --- Verification ---------------------------------------------------------------------------------------------------


def change_faults(study: Study) -> Iterator[str]:
    """Check that every row matches its last recorded state, and that every change starts from the recorded state.

    If a field was added to the model later, earlier states lack it, so their rows must have the field's default.

    Yields:
        One sentence for each fault, naming the row and the field but not the value.
    """
    with transaction.atomic():  # read rows and records in one consistent state
        study_lock(study.pk)
        for chain in (ConfigurationChange, SealedChange):
            recorded: dict[tuple[str, str], dict[str, Any]] = {}
            for change in chain.chain(study.pk).iterator(chunk_size=2000):
                yield from _fold(recorded, change)
            for model in recorded_models():
                yield from _row_faults(chain, model, study, recorded)
            for label, row in recorded:
                yield f"{_name(label)} {row}: is missing, and no record shows who removed it."


def _fold(recorded: dict[tuple[str, str], dict[str, Any]], change: Change) -> Iterator[str]:
    """Apply a change to the recorded states; report the change if it does not start from them."""
    key = (change.model, change.row)
    known = recorded.get(key)
    begins = change.before or {}
    if (change.before is None) == (known is not None):
        yield f"{_name(change.model)} {change.row}: change {change.sequence} does not follow the previous one."
    elif known is not None:
        for field, value in begins.items():
            if field in known and known[field] != value:
                yield (
                    f"{_name(change.model)} {change.row}: before change {change.sequence}, {field} differed from the "
                    f"record."
                )
    if change.after is None:
        recorded.pop(key, None)
    else:
        recorded[key] = (known or {}) | change.after


def _row_faults(
    chain: type[Change], model: type[Recorded], study: Study, recorded: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[str]:
    """Compare the current rows of a model with the ``recorded`` states, which are removed from ``recorded``."""
    is_sealed = chain is SealedChange
    fields = model.sealed_fields if is_sealed else model.open_fields
    label = model._meta.label_lower
    of_study = Q(pk=study.pk) if model is Study else Q(study=study.pk)
    for pk, state in _states(model._base_manager.filter(of_study)):
        values, known = _part(state, fields), recorded.pop((label, str(pk)), None)
        if known is None:
            if values is not None:
                yield f"{_name(label)} {pk}: no record shows who added it."
            continue
        for field in fields:
            value = (values or {}).get(field)
            if field not in known:
                same = value == model._meta.get_field(field).get_default()  # type: ignore[union-attr]  # a column
            else:
                same = _is_sealed(known[field], model, pk, field, value) if is_sealed else known[field] == value
            if not same:
                yield f"{_name(label)} {pk}: {field} differs from the record."


def _name(label: str) -> str:
    """Return the name of a row of the model with this label, or the label if there is no such model."""
    names = {model._meta.label_lower: model._meta.verbose_name for model in recorded_models()}
    return str(names.get(label, label))
