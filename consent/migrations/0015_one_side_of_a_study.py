"""The record of roles begins with the roles that are held, and nobody both operates a study and oversees it.

Whoever has been both stays operator; the committee's role is taken away, on record, because nothing tells whether they
gave it to themself. An administrator appoints the committee anew where it is needed.
"""

from importlib import import_module

from django.db import migrations, models

from common.append_only import GENESIS, row_hash

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def begin(apps, schema_editor):
    """Write and sign the new chain of every study: a row for each role held, one more for each that is taken away."""
    Membership, RoleChange = (apps.get_model("consent", name) for name in ("Membership", "RoleChange"))
    ends = {}
    for study in apps.get_model("consent", "Study").objects.values_list("pk", flat=True):
        sequence, previous = 0, GENESIS
        held = list(Membership.objects.filter(study_id=study).order_by("created_at", "pk"))
        operators = {membership.user_id for membership in held if membership.role == "operator"}
        both = [membership for membership in held if membership.role == "committee" and membership.user_id in operators]
        for kind, membership in [("held", each) for each in held] + [("taken", each) for each in both]:
            sequence += 1
            row = RoleChange(
                study_id=study,
                user_id=membership.user_id,
                role=membership.role,
                kind=kind,
                sequence=sequence,
                previous_hash=previous,
            )
            row.hash = previous = row_hash(row)
            row.save()
        Membership.objects.filter(pk__in=[membership.pk for membership in both]).delete()
        ends[study, "consent.rolechange"] = sequence, previous
    _heads_sign(apps, ends)


class Migration(migrations.Migration):
    dependencies = [("consent", "0014_role_changes")]

    operations = [
        migrations.RunPython(begin, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("role__in", ("operator", "committee", "chair"))),
                fields=("study", "user"),
                name="a_user_operates_a_study_or_oversees_it",
                violation_error_message=(
                    "Nobody has two of the roles operator, ethics committee and chair of the ethics committee in one "
                    "study. Take the other role away first, or choose another person."
                ),
            ),
        ),
    ]
