"""Forms, policies and approvals are chained as consent events are, and every chain's end is kept and signed."""

import django.db.models.deletion
from django.db import migrations, models

from common.append_only import GENESIS, row_hash, triggers_remove

#: The models that become chained, and where their rows say which study they are of.
CHAINED = {"consentform": "study_id", "epsilonpolicy": "study_id", "epsilonpolicyapproval": "policy__study_id"}


def chain_rows(apps, schema_editor):
    """Chain the rows that are there in the order in which they were written, and sign where each chain ends."""
    triggers_remove(schema_editor.connection)  # they are put back once all migrations have run
    ends = {}
    for name, lookup in CHAINED.items():
        for row in apps.get_model("consent", name).objects.order_by("pk").annotate(of_study=models.F(lookup)):
            sequence, row.previous_hash = ends.get((row.of_study, name), (0, GENESIS))
            row.sequence = sequence + 1
            row.hash = row_hash(row)
            row.save()
            ends[row.of_study, name] = row.sequence, row.hash
    for row in apps.get_model("consent", "consentevent").objects.order_by("sequence").iterator():
        ends[row.study_id, "consentevent"] = row.sequence, row.hash
    heads_sign(apps, {(study, f"consent.{name}"): end for (study, name), end in ends.items()})


def heads_sign(apps, ends):
    """A signed head for each (study id, chain)."""
    # A historical model has no methods; the head that signs is the one of today.
    from consent.models import ChainHead

    for (study_id, chain), (sequence, hash) in ends.items():
        head = ChainHead(study_id=study_id, chain=chain, sequence=sequence, hash=hash)
        head.sign()
        apps.get_model("consent", "ChainHead").objects.create(
            study_id=study_id, chain=chain, sequence=sequence, hash=hash, signature=head.signature
        )


def chained(name):
    return [
        migrations.AddField(
            model_name=name,
            name="sequence",
            field=models.PositiveBigIntegerField(default=0, editable=False),
            preserve_default=False,
        ),
        *(
            migrations.AddField(
                model_name=name,
                name=field,
                field=models.CharField(default="", editable=False, max_length=64),
                preserve_default=False,
            )
            for field in ("previous_hash", "hash")
        ),
    ]


class Migration(migrations.Migration):
    dependencies = [("consent", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ChainHead",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("chain", models.CharField(help_text="The model whose rows are chained.", max_length=100)),
                ("sequence", models.PositiveBigIntegerField(default=0)),
                ("hash", models.CharField(default=GENESIS, max_length=64)),
                ("signature", models.CharField(blank=True, max_length=100)),
                (
                    "study",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="chain_heads", to="consent.study"
                    ),
                ),
            ],
            options={
                "verbose_name": "chain head",
                "ordering": ["study", "chain"],
                "constraints": [models.UniqueConstraint(fields=("study", "chain"), name="a_chain_has_one_head")],
            },
        ),
        *(operation for name in CHAINED for operation in chained(name)),
        migrations.AlterModelOptions(
            name="epsilonpolicyapproval",
            options={"ordering": ["sequence"], "verbose_name": "ε policy approval"},
        ),
        migrations.RunPython(chain_rows, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="consentform",
            constraint=models.UniqueConstraint(fields=("study", "sequence"), name="consent_form_sequence_is_unique"),
        ),
        migrations.AddConstraint(
            model_name="epsilonpolicy",
            constraint=models.UniqueConstraint(fields=("study", "sequence"), name="epsilon_policy_sequence_is_unique"),
        ),
    ]
