"""Pseudonyms in their canonical spelling, where no other holder of the study has it."""

from typing import Any

from django.db import migrations

from common.identities import PseudonymError, canonical


def respell(apps: Any, editor: Any) -> None:
    """Respell pseudonyms that differ from their canonical spelling.

    Erased ones are commitments and stay: a lookup tries the earlier spellings. So do pseudonyms that nobody could have
    today, and those whose canonical spelling is taken: the two may be one person, but only people can tell.
    """
    holders = apps.get_model("consent", "DataHolder").objects
    for pk, study, name in holders.filter(erased_at=None).order_by("pk").values_list("pk", "study", "pseudonym"):
        try:
            spelled = canonical(name)
        except PseudonymError:
            continue
        if spelled != name and not holders.filter(study=study, pseudonym=spelled).exists():
            holders.filter(pk=pk).update(pseudonym=spelled)


class Migration(migrations.Migration):
    dependencies = [("consent", "0004_budget_warning")]

    operations = [migrations.RunPython(respell, migrations.RunPython.noop)]
