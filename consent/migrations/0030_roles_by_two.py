"""Changes of roles take two people: proposals in their record; and whose account a superuser has changed."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("consent", "0029_roles_kept_apart"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="accountchange",
            name="account_change_kind_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="rolechange",
            name="role_change_kind_is_known",
        ),
        migrations.AddField(
            model_name="rolechange",
            name="proposed_by",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="accountchange",
            name="kind",
            field=models.CharField(
                choices=[
                    ("created", "account made"),
                    ("changed", "account changed in the admin"),
                    ("invited", "link for a password sent again"),
                    ("appointed", "made an administrator"),
                    ("dismissed", "no longer an administrator"),
                    ("closed", "account closed"),
                    ("reopened", "account opened again"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="rolechange",
            name="kind",
            field=models.CharField(
                choices=[
                    ("given", "given"),
                    ("taken", "taken away"),
                    ("held", "held when this record began"),
                    ("to_give", "proposed: to be given"),
                    ("to_take", "proposed: to be taken away"),
                    ("dropped", "proposal dropped"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="accountchange",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind__in", ["created", "changed", "invited", "appointed", "dismissed", "closed", "reopened"])
                ),
                name="account_change_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="rolechange",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["given", "taken", "held", "to_give", "to_take", "dropped"])),
                name="role_change_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="rolechange",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("proposed_by", None),
                    models.Q(("changed_by", models.F("proposed_by")), _negated=True),
                    _connector="OR",
                ),
                name="role_change_is_confirmed_by_a_second_person",
            ),
        ),
    ]
