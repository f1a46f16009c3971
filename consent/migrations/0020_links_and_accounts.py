"""Every study begins the chain of new links; links that an account has replaced are revoked, as they opened nothing."""

from importlib import import_module

from django.db import migrations
from django.utils import timezone

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def begin(apps, schema_editor):
    studies = apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
    _heads_sign(apps, {(study, "consent.linkreissue"): (0, GENESIS) for study in studies})
    replaced = apps.get_model("consent", "Invitation").objects.filter(holder__user__isnull=False, revoked_at=None)
    replaced.update(revoked_at=timezone.now())


class Migration(migrations.Migration):
    dependencies = [("consent", "0019_accounts_and_mail")]

    operations = [migrations.RunPython(begin, migrations.RunPython.noop)]
