"""Files that rows of the database name, and ends of the chains, as one moment of it has them."""

from django.apps import apps

from ipate_web.backups.databases import Query

#: A file: the storage and its name there.
Name = tuple[str, str]

#: Fields that name a file: model, field, storage.
FIELDS = (
    ("accounting.Release", "charges", "private"),
    ("accounting.AccountBook", "artifact", "private"),
    ("training.Dataset", "artifact", "private"),
    ("training.Encoder", "artifact", "private"),
    ("training.Run", "assignment", "private"),
    ("training.TeacherChunk", "artifact", "private"),
    ("training.Shard", "artifact", "private"),
    ("training.StudentTraining", "artifact", "private"),
    ("training.Round", "artifact", "private"),
    ("training.Batch", "attempt", "private"),
    ("training.Batch", "released", "private"),
    ("training.JointQuestion", "answer", "private"),
    ("training.JointQuestion", "attempt", "private"),
    ("training.JointQuestion", "total", "private"),
    ("training.JointAnswer", "artifact", "private"),
    ("training.StudentModel", "artifact", "models"),
    ("training.StudentModel", "onnx", "models"),
    ("training.RunResult", "artifact", "models"),
)


def referenced_files(query: Query) -> set[Name]:
    """Every file that a row names."""
    named = set()
    for label, field_name, alias in FIELDS:
        model = apps.get_model(label)
        column = model._meta.get_field(field_name).column
        table = model._meta.db_table
        named |= {(alias, name) for (name,) in query(f"SELECT {column} FROM {table} WHERE {column} <> ''")}  # noqa: S608
    return named


def heads_of(query: Query) -> dict[str, dict[str, list]]:
    """Ends of all chains: short name of the study → chain → sequence and hash."""
    heads: dict[str, dict[str, list]] = {}
    for slug, chain, sequence, hash in query(
        "SELECT s.slug, h.chain, h.sequence, h.hash FROM consent_chainhead h JOIN consent_study s ON s.id = h.study_id"
    ):
        heads.setdefault(slug, {})[chain] = [sequence, hash]
    return heads


def migrations_of(query: Query) -> list[list[str]]:
    """Migrations that the database has been through."""
    return sorted([app, name] for app, name in query("SELECT app, name FROM django_migrations"))
