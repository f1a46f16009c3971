"""Change pseudonyms to their canonical spelling, unless another holder of the study has that pseudonym."""

from typing import Any

from django.db import migrations

from common.identities import PseudonymError, canonical


def respell(apps: Any, editor: Any) -> None:
    """Respell pseudonyms that differ from their canonical spelling.

    Erased pseudonyms are commitments and stay unchanged, because a lookup tries earlier spellings. Pseudonyms that
    would be invalid today stay unchanged too. So do those whose canonical spelling is taken: both may belong to one
    person, which only the study's staff can find out.
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
