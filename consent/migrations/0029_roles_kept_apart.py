"""More roles are kept apart: nobody watches a study and decides in it, or sees exact numbers and researches.

Who has two of them keeps the role that decides; the one that watches is taken away, on record, because nothing tells
whether they gave it to themself. Whoever handles records and researches stays data steward.
"""

from django.db import migrations, models

from common.append_only import row_hash

#: Of two roles that one person has, the role that goes: the first of these that excludes another of theirs.
_GOES = (
    ("auditor", {"operator", "steward", "committee", "chair", "researcher"}),
    ("committee", {"steward"}),
    ("chair", {"steward"}),
    ("researcher", {"steward"}),
)


def keep_apart(apps, schema_editor):
    """Take away what nobody may hold beside their other role, with a row in the record for each."""
    Membership, RoleChange = (apps.get_model("consent", name) for name in ("Membership", "RoleChange"))
    held = {}
    for membership in Membership.objects.order_by("study_id", "pk"):
        held.setdefault((membership.study_id, membership.user_id), {})[membership.role] = membership
    for (study, user), roles in held.items():
        for role, excluded in _GOES:
            if role in roles and excluded & set(roles):
                _append(apps, RoleChange(study_id=study, user_id=user, role=role, kind="taken"))
                roles.pop(role).delete()


def _append(apps, row):
    """Append a row to the study's record and move its signed head, which stays unsigned where it was."""
    # A historical model has no methods; the head that signs is the one of today.
    from consent.models import ChainHead

    kept = apps.get_model("consent", "ChainHead").objects.get(study_id=row.study_id, chain="consent.rolechange")
    head = ChainHead(
        study_id=row.study_id, chain=kept.chain, sequence=kept.sequence, hash=kept.hash, signature=kept.signature
    )
    genuine = head.is_genuine
    row.sequence, row.previous_hash = kept.sequence + 1, kept.hash
    row.hash = row_hash(row)
    row.save()
    head.sequence, head.hash, head.signature = row.sequence, row.hash, ""
    if genuine:
        head.sign()
    kept.sequence, kept.hash, kept.signature = head.sequence, head.hash, head.signature
    kept.save()


class Migration(migrations.Migration):
    dependencies = [("consent", "0028_dataholder_linked_at")]

    operations = [
        migrations.RunPython(keep_apart, migrations.RunPython.noop),
        migrations.RemoveConstraint(
            model_name="membership",
            name="a_user_operates_a_study_or_oversees_it",
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("role__in", ("operator", "committee", "chair", "auditor"))),
                fields=("study", "user"),
                name="a_user_operates_a_study_or_oversees_it",
                violation_error_message="This person has a role in the study that excludes this one: nobody decides and watches, and nobody who sees exact numbers of people proposes runs without operating the study. Take the other role away first, or choose another person.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("role__in", ("steward", "committee", "chair", "auditor"))),
                fields=("study", "user"),
                name="a_user_handles_records_or_oversees_a_study",
                violation_error_message="This person has a role in the study that excludes this one: nobody decides and watches, and nobody who sees exact numbers of people proposes runs without operating the study. Take the other role away first, or choose another person.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("role__in", ("researcher", "steward", "auditor"))),
                fields=("study", "user"),
                name="a_user_sees_sizes_or_researches",
                violation_error_message="This person has a role in the study that excludes this one: nobody decides and watches, and nobody who sees exact numbers of people proposes runs without operating the study. Take the other role away first, or choose another person.",
            ),
        ),
    ]
