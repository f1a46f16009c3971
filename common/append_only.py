"""Append-only tables, enforced by triggers in the database and chained by hashes.

Rows of a model that inherits :class:`AppendOnly` can be inserted and read. Triggers refuse UPDATE and DELETE (on
PostgreSQL also TRUNCATE, on SQLite also an INSERT that would replace a row) for every client: the ORM, the admin, or a
person with an SQL prompt. Triggers are installed after every ``migrate``, because SQLite's schema changes rebuild
tables and lose their triggers.

:class:`Chained` adds, for each study, a sequence number without gaps and a SHA-256 over every other column and the
previous row's hash, so that editing, removing, inserting or reordering rows despite the triggers is detected. The end
of a chain is stored separately in a :class:`Head`, signed with a key that is not in the database, so an attacker with
only the database cannot shorten, empty or recompute a chain undetected. An attacker could still restore an older state
of the whole database; to detect this, heads are also recorded outside it (see ``ipate verify_ledger --noted``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Self

from django.apps import apps
from django.core.signing import BadSignature, Signer
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from common.bulk import rows_clean, rows_insert
from common.journal import acts_read, journal_read, note, pending_confirm, pending_forget
from common.keys import Purpose, keys_of
from common.row_hashes import hashed_columns, possible_hashes, row_hash

GENESIS = "0" * 64


class AppendOnlyError(Exception):
    """Raised if a row of an append-only table would be changed or deleted."""


class AppendOnlyQuerySet(models.QuerySet):
    def update(self, **kwargs: Any) -> NoReturn:
        raise AppendOnlyError(f"{self.model._meta.verbose_name_plural} are never edited; add a new one instead.")

    def delete(self) -> NoReturn:
        raise AppendOnlyError(f"{self.model._meta.verbose_name_plural} are never deleted.")


class AppendOnly(models.Model):
    """Abstract model of append-only rows, which can be inserted and read, but not updated or deleted."""

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnlyError(f"A {self._meta.verbose_name} is never edited; add a new one instead.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnlyError(f"A {self._meta.verbose_name} is never deleted.")


class Head(models.Model):
    """Signed end of a study's chain: ``sequence`` and ``hash`` of its last row.

    Appending to a chain whose head has a wrong signature leaves the head unsigned, so that appending never validates a
    forged head.
    """

    chain = models.CharField(max_length=100, help_text="Label of the model whose rows are chained.")
    sequence = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default=GENESIS)
    signature = models.CharField(max_length=100, blank=True)

    class Meta:
        abstract = True

    @property
    def _signed(self) -> str:
        return f"{self.chain}/{self.study_id}/{self.sequence}/{self.hash}"  # type: ignore[attr-defined]

    def sign(self) -> None:
        self.signature = _signer().signature(self._signed)

    @property
    def is_genuine(self) -> bool:
        """Whether the head was signed with the current signing key or an earlier key."""
        try:
            _signer().unsign(f"{self._signed}:{self.signature}")
        except BadSignature:
            return False
        return True

    def advance(self, *, sequence: int, hash: str) -> None:
        """Move the head to the chain's new last row, and sign it if it was signed correctly before."""
        genuine = self.is_genuine
        self.sequence, self.hash = sequence, hash
        if genuine:
            self.sign()
        else:
            self.signature = ""
        self.save()


def _signer() -> Signer:
    today, *earlier = keys_of(Purpose.SIGNING)
    return Signer(key=today, fallback_keys=list[bytes | str](earlier), salt="ipate.chain")


class Chained(AppendOnly):
    """Abstract model of rows in one hash chain per study. Subclasses have a key ``study`` or set ``study_lookup``."""

    #: The table with the end of each chain. It is set by the app that defines studies.
    head_model: ClassVar[type[Any]]
    #: Query lookup for the study of a row. Every row also has the attribute ``study_id``.
    study_lookup: ClassVar[str] = "study_id"
    #: Whether the installation has one chain instead of one for each study.
    of_installation: ClassVar[bool] = False
    #: Columns added after rows existed, with the value that older rows have. This value is left out of the hash so that
    #: older hashes stay valid.
    added_columns: ClassVar[dict[str, Any]] = {}
    #: Whether the journal keeps a copy of every row, so that rows missing from a restored database can be added again.
    is_act: ClassVar[bool] = False

    sequence = models.PositiveBigIntegerField(editable=False)
    previous_hash = models.CharField(max_length=64, editable=False)
    hash = models.CharField(max_length=64, editable=False)

    class Meta:
        abstract = True
        ordering = ["sequence"]

    def computed_hash(self) -> str:
        """Return the hash of the row's content (see :func:`row_hash`), which is ``hash`` unless the row was changed."""
        return row_hash(self)

    @classmethod
    def chain(cls, study_id: int | None) -> models.QuerySet[Any]:
        """Return the rows of a study's chain, oldest first."""
        return cls._default_manager.filter(**{cls.study_lookup: study_id}).order_by("sequence", "pk")

    @classmethod
    def head(cls, study_id: int | None) -> Head:
        """Return the head of a study's chain, unsigned if it is missing from the database.

        Every chain gets a head when its study begins (:func:`chains_begin`), so a missing head is never signed.
        """
        chain = cls._meta.label_lower
        row = cls.head_model._default_manager.filter(study_id=study_id, chain=chain).order_by("pk").first()
        if row is not None:
            return row
        head = cls.head_model(study_id=study_id, chain=chain)
        last = cls.chain(study_id).values_list("sequence", "hash").last()
        if last is not None:
            head.sequence, head.hash = last
        return head

    @classmethod
    def append(cls, rows: Iterable[Self]) -> list[Self]:
        """Append rows to the end of their study's chain.

        The caller holds the study's lock in a transaction (:func:`consent.services.study_lock`).

        Args:
            rows: unsaved rows, all of one study.

        Returns:
            The rows. A single row gets its primary key; several rows do not.

        Raises:
            ValidationError: a value is invalid for its column.
        """
        rows = list(rows)
        if not rows:
            return rows
        study_id = rows[0].study_id  # type: ignore[attr-defined]
        head = cls.head(study_id)
        # Rows added without this method must not prevent further appends; verifying the chain shows where they are.
        last = cls._last_sequence(study_id)
        previous = head.hash
        # The database itself checks that references exist.
        references = {field.name for field in cls._meta.fields if field.is_relation}
        rows_clean(rows, exclude={"sequence", "previous_hash", "hash"} | references)
        for sequence, row in enumerate(rows, max(head.sequence, last) + 1):
            row.sequence, row.previous_hash = sequence, previous
            row.hash = previous = row.computed_hash()
        pending_settle(study_id)
        rows_insert(rows)
        head.advance(sequence=rows[-1].sequence, hash=previous)
        label = cls._meta.label_lower
        # Rows may be appended to a chain that has lost rows, but this must not hide the loss.
        heads = {} if cls.rows_missing(study_id) else {label: (rows[-1].sequence, previous)}
        note(study_id, heads=heads, acts=[{"chain": label} | row.as_act() for row in rows] if cls.is_act else ())
        return rows

    @classmethod
    def _last_sequence(cls, study_id: int | None) -> int:
        """Return the sequence number of a chain's last row, or 0 if it is empty."""
        if cls.of_installation or cls.study_lookup != "study_id":
            return cls.chain(study_id).aggregate(last=models.Max("sequence"))["last"] or 0
        connection = connections[router.db_for_write(cls)]
        table, column = map(connection.ops.quote_name, (cls._meta.db_table, "study_id"))
        # The ORM would take ten times as long to build this statement as the database takes to execute it.
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT MAX(sequence) FROM {table} WHERE {column} = %s", [study_id])  # noqa: S608
            return cursor.fetchone()[0] or 0

    def as_act(self) -> dict[str, Any]:
        """Return every column except the key, for the journal; the inverse of :meth:`from_act`."""
        return {column: getattr(self, column) for column in (*hashed_columns(type(self)), "hash")}

    @classmethod
    def from_act(cls, act: dict[str, Any]) -> Self:
        """Return an unsaved row with the content of a lost row, for appending to its chain. Raises ValidationError.

        Columns that did not exist when the act was recorded get their values from ``added_columns``.
        """
        act = {**cls.added_columns, **act}
        columns = set(hashed_columns(cls)) - {"sequence", "previous_hash"}
        fields = [field for field in cls._meta.concrete_fields if field.attname in columns]
        return cls(**{field.attname: field.to_python(act[field.attname]) for field in fields})

    @classmethod
    def acts_lost(cls, study_id: int) -> tuple[list[dict[str, Any]], bool]:
        """Return acts that are in the journal but missing from the chain.

        Acts are traced back from the last hash in the journal, so acts that were recorded but never committed are
        excluded.

        Returns:
            The acts, oldest first, and whether they are complete; the journal may have deleted old acts.
        """
        if not cls.rows_missing(study_id):
            return [], True
        label = cls._meta.label_lower
        lost: list[dict[str, Any]] = []
        acts = {act["hash"]: act for act in acts_read(study_id) if act["chain"] == label}
        hash = journal_read(study_id)["heads"][label][1]
        while hash != GENESIS and not cls.chain(study_id).filter(hash=hash).exists():
            if hash not in acts:
                return lost[::-1], False
            lost.append(acts[hash])
            hash = acts[hash]["previous_hash"]
        return lost[::-1], True

    @classmethod
    def rows_missing(cls, study_id: int | None) -> int:
        """Return the number of journal rows missing from the chain (at least 1 if journal and chain differ)."""
        noted = journal_read(study_id)["heads"].get(cls._meta.label_lower)
        if noted is None:
            return 0
        sequence, hash = noted
        if cls.chain(study_id).filter(sequence=sequence, hash=hash).exists():
            return 0
        return max(1, sequence - cls.head(study_id).sequence)

    @classmethod
    def chain_faults(
        cls, study_id: int | None, watch: Callable[[Iterable[Any]], Iterable[Any]] = iter, *, after: int = 0
    ) -> Iterator[str]:
        """Verify a study's chain row by row. The rows are passed through ``watch``, such as a progress bar.

        Rows with sequence numbers up to ``after`` are skipped.

        Yields:
            One sentence for each fault. The check ends at a row with a value that its column cannot store.
        """
        name, columns, chain = cls._meta.verbose_name, hashed_columns(cls), cls.chain(study_id)
        rows = chain.filter(sequence__gt=after).values_list("sequence", "previous_hash", "hash", *columns)
        last: int = after
        previous: str | None = GENESIS
        if after:
            previous = chain.filter(sequence=after).values_list("hash", flat=True).first()
        try:
            for sequence, previous_hash, recorded, *values in watch(rows.iterator(chunk_size=2000)):
                if sequence != last + 1:
                    yield f"{name} {sequence}: expected number {last + 1}; rows are missing, inserted or reordered."
                if previous_hash != previous:
                    yield f"{name} {sequence}: does not follow the row before it (previous hash differs)."
                if recorded not in possible_hashes(columns, values, cls.added_columns):
                    yield f"{name} {sequence}: its content was changed after it was recorded (hash differs)."
                last, previous = sequence, recorded
        except (TypeError, ValueError) as error:  # SQLite accepts any text in any column
            yield f"{name} {last + 1}: cannot be read ({type(error).__name__}: {error})."
            return
        head = cls.head(study_id)
        if not head.is_genuine:
            yield f"{name} {last}: the end of the chain is not signed with this site's secret key."
        if head.sequence != last:
            yield f"{name} {last}: the chain ends here, but its head is at {head.sequence}; rows were removed or added."
        elif head.hash != previous:
            yield f"{name} {last}: is not the last row of the chain (its hash differs from the chain's head)."


def pending_settle(study_id: int | None) -> None:
    """Confirm or drop the journal's pending transaction, depending on whether it was committed before its process died.

    The caller holds the study's lock, so the transaction has ended.
    """
    pending = journal_read(study_id)["pending"]
    if not pending:
        return
    ends = {chain: head for chain, head in pending["heads"].items() if chain in _by_label()}
    is_there = all(
        _by_label()[chain].chain(study_id).filter(sequence=sequence, hash=hash).exists()
        for chain, (sequence, hash) in ends.items()
    )
    # In a restored database this cannot be determined, so assume the worse case, in which the rows were committed.
    chains = installation_chains() if study_id is None else chained_models()
    if is_there or any(model.rows_missing(study_id) for model in chains):
        pending_confirm(study_id)
    else:
        pending_forget(study_id)


def chains_begin(study_id: int) -> None:
    """Sign the heads of all chains of a new study, which are still empty. From then on, a missing head is a fault."""
    heads = [model.head_model(study_id=study_id, chain=model._meta.label_lower) for model in chained_models()]
    for head in heads:
        head.sign()
    for table in {type(head) for head in heads}:
        table._default_manager.bulk_create([head for head in heads if type(head) is table])


# --- Triggers -------------------------------------------------------------------------------------------------------


def append_only_models() -> list[type[AppendOnly]]:
    return [model for model in apps.get_models() if issubclass(model, AppendOnly)]


def chained_models() -> list[type[Chained]]:
    """Return the models whose chains exist for every study."""
    return [model for model in _chains() if not model.of_installation]


def installation_chains() -> list[type[Chained]]:
    """Return the models whose chains belong to no study. Their methods take None instead of a study id."""
    return [model for model in _chains() if model.of_installation]


def _chains() -> list[type[Chained]]:
    return [model for model in apps.get_models() if issubclass(model, Chained)]


def acts_models() -> list[type[Chained]]:
    """Return the chained models whose rows the journal keeps."""
    return [model for model in chained_models() if model.is_act]


def _by_label() -> dict[str, type[Chained]]:
    return {model._meta.label_lower: model for model in _chains()}


def _trigger(table: str, event: str) -> str:
    return f"{table}_no_{event.lower()}"


def triggers_install(connection: BaseDatabaseWrapper) -> None:
    """Install the triggers that refuse UPDATE and DELETE on every append-only table of ``connection``. Idempotent."""
    with connection.cursor() as cursor:
        present = set(connection.introspection.table_names(cursor))
        tables = {model._meta.db_table: model for model in append_only_models() if model._meta.db_table in present}
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE OR REPLACE FUNCTION ipate_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP; END $$"
            )
        for table, model in tables.items():
            if connection.vendor == "postgresql":
                for event in ("UPDATE", "DELETE", "TRUNCATE"):
                    cursor.execute(
                        f"CREATE OR REPLACE TRIGGER {_trigger(table, event)} BEFORE {event} ON {table} "
                        f"FOR EACH STATEMENT EXECUTE FUNCTION ipate_append_only()"
                    )
            else:
                for event in ("UPDATE", "DELETE"):
                    cursor.execute(
                        f"CREATE TRIGGER IF NOT EXISTS {_trigger(table, event)} BEFORE {event} ON {table} "
                        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: {event} refused'); END"
                    )
                # INSERT OR REPLACE deletes conflicting rows without firing any trigger on DELETE.
                cursor.execute(
                    f"CREATE TRIGGER IF NOT EXISTS {_trigger(table, 'INSERT')} BEFORE INSERT ON {table} "
                    f"WHEN EXISTS ({_rows_in_the_way(model)}) BEGIN "
                    f"SELECT RAISE(ABORT, '{table} is append-only: INSERT refused, not UNIQUE'); END"
                )


def _rows_in_the_way(model: type[models.Model]) -> str:
    """Return SQL for rows that conflict with NEW: same key, or same values under an unconditional unique constraint."""
    options = model._meta
    unique: list[Sequence[str]] = [[field.name] for field in options.concrete_fields if field.unique]  # and the key
    unique += [*options.unique_together, *(constraint.fields for constraint in options.total_unique_constraints)]
    columns = [[options.get_field(name).column for name in names] for names in unique]  # type: ignore[union-attr]
    same = " OR ".join("(" + " AND ".join(f"{name} = NEW.{name}" for name in names) + ")" for names in columns)
    return f"SELECT 1 FROM {options.db_table} WHERE {same}"  # noqa: S608, the model's names


def triggers_remove(connection: BaseDatabaseWrapper) -> None:
    """Remove the triggers. Only for emptying a test database."""
    with connection.cursor() as cursor:
        for model in append_only_models():
            table = model._meta.db_table
            for event in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
                on_table = f" ON {table}" if connection.vendor == "postgresql" else ""
                cursor.execute(f"DROP TRIGGER IF EXISTS {_trigger(table, event)}{on_table}")


def install_after_migrate(*, using: str, **_: object) -> None:
    """Install the triggers after ``migrate`` (signal ``post_migrate``)."""
    triggers_install(connections[using])
