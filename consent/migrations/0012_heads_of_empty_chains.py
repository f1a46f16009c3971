"""Every chain has a signed head from its study's beginning on, so that a chain which was emptied has none.

Chains with rows but without a head stay as they are: nobody vouches for them.
"""

from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign

#: The tables that are chained by now, and where their rows say which study they are of.
CHAINED = {
    "consent.consentform": "study_id",
    "consent.epsilonpolicy": "study_id",
    "consent.epsilonpolicyapproval": "policy__study_id",
    "consent.consentevent": "study_id",
    "consent.levelaccess": "study_id",
}


def sign(apps, schema_editor):
    signed = set(apps.get_model("consent", "ChainHead").objects.values_list("study_id", "chain"))
    missing = [
        (study, chain)
        for study in apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
        for chain, lookup in CHAINED.items()
        if (study, chain) not in signed and not apps.get_model(chain).objects.filter(**{lookup: study}).exists()
    ]
    _heads_sign(apps, dict.fromkeys(missing, (0, GENESIS)))


class Migration(migrations.Migration):
    # Not before the heads of the chains that have rows are signed.
    dependencies = [("consent", "0011_fewer_indexes")]

    operations = [
        migrations.AlterField(
            model_name="chainhead",
            name="study",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="chain_heads", to="consent.study"
            ),
        ),
        migrations.RunPython(sign, migrations.RunPython.noop),
    ]
