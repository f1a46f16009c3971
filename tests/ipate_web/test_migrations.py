"""Changes to models that need a migration, and changes that do not."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.validators import MaxLengthValidator

from consent.models import Membership, Study

pytestmark = pytest.mark.django_db


def needs_migration() -> bool:
    try:
        call_command("makemigrations", check=True, dry_run=True, stdout=StringIO())
    except SystemExit:
        return True
    return False


def test_only_schema_changes_need_a_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    field = Study._meta.get_field("title")
    (rule, *_) = (each for each in Membership._meta.constraints if each.name == "a_user_sees_sizes_or_researches")
    for thing, name, value in (
        (field, "_verbose_name", "other"),
        (field, "help_text", "Other."),
        (field, "choices", [("a", "A")]),
        (field, "_validators", [MaxLengthValidator(3)]),
        (rule, "violation_error_message", "Other."),
    ):
        monkeypatch.setattr(thing, name, value)
    monkeypatch.setitem(Study._meta.original_attrs, "verbose_name", "other")
    assert not needs_migration()
    out = StringIO()
    call_command("migrate", stdout=out)
    assert "No migrations to apply" in out.getvalue() and "not yet reflected" not in out.getvalue()
    for name, value in (("max_length", 201), ("null", True), ("blank", True)):
        with monkeypatch.context() as patched:
            patched.setattr(field, name, value)
            assert needs_migration(), name
    assert not needs_migration()
