"""The chair of the ethics committee, and a record of who gave which role to whom."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

ROLES = [
    ("operator", "operator"),
    ("committee", "ethics committee"),
    ("chair", "chair of the ethics committee"),
    ("auditor", "auditor"),
    ("researcher", "researcher"),
]
NAMES = [name for name, _label in ROLES]


class Migration(migrations.Migration):
    dependencies = [
        ("consent", "0013_wrong_codes_moved"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="membership", name="membership_role_is_known"),
        migrations.AlterField(
            model_name="membership", name="role", field=models.CharField(choices=ROLES, max_length=20)
        ),
        migrations.AlterField(
            model_name="membership",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="memberships",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(condition=models.Q(("role__in", NAMES)), name="membership_role_is_known"),
        ),
        migrations.CreateModel(
            name="RoleChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.PositiveBigIntegerField(editable=False)),
                ("previous_hash", models.CharField(editable=False, max_length=64)),
                ("hash", models.CharField(editable=False, max_length=64)),
                ("role", models.CharField(choices=ROLES, max_length=20)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("given", "given"),
                            ("taken", "taken away"),
                            ("held", "held when this record began"),
                        ],
                        max_length=10,
                    ),
                ),
                ("changed_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "changed_by",
                    models.ForeignKey(
                        db_constraint=False,
                        help_text="Empty: whoever administers the installation, at the command line.",
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "study",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="role_changes", to="consent.study"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "change of a role",
                "verbose_name_plural": "changes of roles",
                "ordering": ["sequence"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(fields=("study", "sequence"), name="role_change_sequence_is_unique"),
                    models.CheckConstraint(condition=models.Q(("role__in", NAMES)), name="role_change_role_is_known"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["given", "taken", "held"])), name="role_change_kind_is_known"
                    ),
                ],
            },
        ),
    ]
