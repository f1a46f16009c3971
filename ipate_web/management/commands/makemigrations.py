"""``makemigrations`` for the schema only, because names, help texts, choices and validators need no migration."""

from typing import Any

from django.core.management.commands import makemigrations
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ProjectState

#: Arguments of fields and constraints, and options of models, that forms and pages use but the database does not.
_BEYOND_THE_SCHEMA = {
    *("choices", "editable", "error_messages", "help_text", "validators"),
    *("verbose_name", "verbose_name_plural", "violation_error_code", "violation_error_message"),
}


class SchemaAutodetector(MigrationAutodetector):
    """Autodetector that ignores every part of fields, constraints and options that does not concern the schema."""

    def __init__(self, from_state: ProjectState, to_state: ProjectState, questioner: Any = None) -> None:
        super().__init__(_schema_of(from_state), _schema_of(to_state), questioner)


def _schema_of(state: ProjectState) -> ProjectState:
    state = state.clone()
    for model in state.models.values():
        model.fields = {name: _bare(field) for name, field in model.fields.items()}
        constraints = [_bare(constraint) for constraint in model.options.get("constraints", ())]
        options = {name: value for name, value in model.options.items() if name not in _BEYOND_THE_SCHEMA}
        model.options = {**options, "constraints": constraints}
    return state


def _bare(part: Any) -> Any:
    """Return a copy of a field or constraint without arguments that do not concern the schema."""
    *_, args, kwargs = part.deconstruct()
    return type(part)(*args, **{name: value for name, value in kwargs.items() if name not in _BEYOND_THE_SCHEMA})


class Command(makemigrations.Command):
    autodetector = SchemaAutodetector
