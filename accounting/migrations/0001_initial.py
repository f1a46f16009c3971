"""Create the chained tables of releases and shares, and the tables derived from them."""

from django.conf import settings
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT, Q

from common.migrations._parts import CHAINED, ID, actor, check, foreign, moment, unique

USER = settings.AUTH_USER_MODEL


class Migration(migrations.Migration):
    initial = True

    dependencies = [("consent", "0001_initial"), migrations.swappable_dependency(USER)]

    operations = [
        migrations.CreateModel(
            "Release",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="releases", db_index=False),
                ("kind", models.CharField(max_length=20)),
                ("run", models.UUIDField(blank=True, null=True)),
                ("batch", models.PositiveIntegerField(blank=True, null=True)),
                ("content", models.JSONField(blank=True, default=dict)),
                ("charge", models.FloatField(default=0.0)),
                ("charges", models.CharField(blank=True, max_length=200)),
                ("charges_digest", models.CharField(blank=True, max_length=64)),
                actor("recorded_by", null=True),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "release",
                "verbose_name_plural": "releases",
                "ordering": ["sequence"],
                "permissions": [("view_ledger", "Can see the release register and the shares")],
                "constraints": [
                    unique("release_sequence_is_unique", "study", "sequence"),
                    unique("release_charges_a_batch_once", "run", "batch", condition=Q(batch__isnull=False)),
                    check("release_charge_is_not_negative", Q(charge__gte=0)),
                ],
            },
        ),
        migrations.CreateModel(
            "ShareRecord",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="share_records", db_index=False),
                ("subject", models.UUIDField()),
                ("purpose", models.CharField(max_length=40)),
                ("kind", models.CharField(max_length=10)),
                ("share", models.FloatField()),
                ("limit", models.FloatField(blank=True, null=True)),
                actor("recorded_by", null=True),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "share record",
                "verbose_name_plural": "share records",
                "ordering": ["sequence"],
                "constraints": [
                    unique("sharerecord_sequence_is_unique", "study", "sequence"),
                    unique("share_record_is_made_once", "subject", "kind"),
                    check("share_record_is_a_share", Q(share__gte=0, share__lte=1)),
                ],
            },
        ),
        migrations.CreateModel(
            "AccountBook",
            [
                (
                    "study",
                    models.OneToOneField(
                        "consent.study", PROTECT, related_name="account_book", primary_key=True, serialize=False
                    ),
                ),
                ("artifact", models.CharField(max_length=200)),
                ("digest", models.CharField(max_length=64)),
                ("sequence", models.PositiveBigIntegerField()),
            ],
            options={"verbose_name": "account book", "verbose_name_plural": "account books"},
        ),
        migrations.CreateModel(
            "HeadCount",
            [
                ID,
                foreign("study", "consent.study", related_name="head_counts"),
                foreign("release", "accounting.release", related_name="head_counts"),
                ("level", models.CharField(max_length=10)),
                ("epsilon", models.FloatField()),
                ("count", models.PositiveIntegerField()),
                ("sigma", models.FloatField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "head count",
                "verbose_name_plural": "head counts",
                "ordering": ["study", "-release", "epsilon"],
                "constraints": [unique("head_count_is_given_once", "release", "level", "epsilon")],
            },
        ),
        migrations.CreateModel(
            "EndedReach",
            [
                (
                    "user",
                    models.OneToOneField(USER, CASCADE, related_name="ended_reach", primary_key=True, serialize=False),
                ),
                ("mu_squared", models.FloatField(default=0.0)),
            ],
            options={
                "verbose_name": "reach of ended studies",
                "verbose_name_plural": "reaches of ended studies",
                "constraints": [check("ended_reach_is_not_negative", Q(mu_squared__gte=0))],
            },
        ),
    ]
