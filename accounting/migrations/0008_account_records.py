"""When accounts were opened and settled, and with what, is chained; those there are are sealed as they stand."""

from collections import defaultdict
from importlib import import_module

import numpy as np
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from accounting.seals import account_seals
from ipate_web.append_only import GENESIS, row_hash

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def seal(apps, schema_editor):
    ends = {}
    for study in apps.get_model("consent", "Study").objects.all():
        end = (0, GENESIS)
        for record in _records(apps, study):
            record.sequence, record.previous_hash = end[0] + 1, end[1]
            record.hash = row_hash(record)
            record.save()
            end = (record.sequence, record.hash)
        ends[study.pk, "accounting.accountrecord"] = end
    _heads_sign(apps, ends)


def _records(apps, study):
    model = {
        name: apps.get_model("accounting", name)
        for name in ("AccountRecord", "HolderSpending", "PrivacyGroup", "RunAccount", "SpendingHistory")
    }
    nodes = list(model["SpendingHistory"].objects.filter(study=study).order_by("pk"))
    holders = defaultdict(list)  # node → ids
    for holder, node in model["HolderSpending"].objects.filter(holder__study=study).values_list("holder", "history"):
        holders[node].append(holder)
    for account in model["RunAccount"].objects.filter(study=study, simulation=False).order_by("opened_at", "pk"):
        groups = list(model["PrivacyGroup"].objects.filter(account=account))
        members = {group.pk: [] for group in groups}
        group_in = {None: None}
        for node in nodes:  # a parent is older than its children
            group_in[node.pk] = node.group_id if node.group_id in members else group_in[node.parent_id]
            if group_in[node.pk]:
                members[group_in[node.pk]] += holders[node.pk]
        seals = account_seals(account, [(group, np.array(members[group.pk], dtype=np.int64)) for group in groups])
        kind = "reserved" if account.is_reservation else "opened"
        yield model["AccountRecord"](study=study, run=account.run, kind=kind, seals=seals)
        if account.settled_at:
            yield model["AccountRecord"](study=study, run=account.run, kind="settled", recorded_at=account.settled_at)


class Migration(migrations.Migration):
    dependencies = [
        ("accounting", "0007_fewer_indexes"),
        ("consent", "0011_fewer_indexes"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccountRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.PositiveBigIntegerField(editable=False)),
                ("previous_hash", models.CharField(editable=False, max_length=64)),
                ("hash", models.CharField(editable=False, max_length=64)),
                ("run", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("reserved", "reserved"),
                            ("opened", "opened"),
                            ("settled", "settled"),
                            ("released", "released"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "seals",
                    models.JSONField(
                        blank=True, default=dict, help_text="What the account was opened with, see accounting.seals."
                    ),
                ),
                ("recorded_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "study",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="account_records",
                        to="consent.study",
                    ),
                ),
            ],
            options={
                "verbose_name": "account record",
                "verbose_name_plural": "account records",
                "ordering": ["sequence"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(fields=("study", "sequence"), name="account_record_sequence_is_unique")
                ],
            },
        ),
        migrations.RunPython(seal, migrations.RunPython.noop),
    ]
