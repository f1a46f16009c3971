"""Move the keys of repeated proposals to ``common.HandledRequest``, with those of all other requests."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("common", "0002_handled_requests"), ("training", "0008_planning")]

    operations = [
        migrations.RemoveConstraint("run", "a_proposal_with_a_key_is_saved_once"),
        migrations.RemoveField("run", "proposal_key"),
        migrations.RemoveField("run", "proposal_digest"),
    ]
