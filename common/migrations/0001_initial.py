"""Create the tables of counted events, worker heartbeats and backups."""

from django.db import migrations, models

from common.migrations._parts import ID


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            "ThrottleEntry",
            [
                ID,
                ("key", models.CharField(max_length=64)),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "throttle entries",
                "indexes": [
                    models.Index(name="throttle_by_key", fields=["key", "expires_at"]),
                    models.Index(name="throttle_by_expiry", fields=["expires_at"]),
                ],
            },
        ),
        migrations.CreateModel(
            "WorkerHeartbeat",
            [
                ID,
                ("name", models.CharField(max_length=300, unique=True)),
                ("heard_at", models.DateTimeField(db_index=True)),
            ],
            options={"verbose_name_plural": "worker heartbeats"},
        ),
        migrations.CreateModel(
            "BackupRecord",
            [
                ID,
                ("made_at", models.DateTimeField(db_index=True)),
                ("encrypted", models.BooleanField()),
            ],
            options={"verbose_name_plural": "backup records"},
        ),
        migrations.CreateModel(
            "Pulse",
            [
                ID,
                ("name", models.CharField(max_length=50, unique=True)),
                ("at", models.DateTimeField()),
                ("until", models.DateTimeField(null=True)),
                ("note", models.CharField(max_length=200)),
            ],
            options={"verbose_name_plural": "pulses"},
        ),
    ]
