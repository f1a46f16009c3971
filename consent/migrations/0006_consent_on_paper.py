"""A decision on paper names the day of its signature and the scan that proves it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0005_what_holders_are_told")]

    operations = [
        migrations.AddField(
            model_name="consentevent",
            name="evidence",
            field=models.CharField(
                blank=True,
                default="",
                help_text="SHA-256 of the scan, for what was decided on paper.",
                max_length=64,
            ),
        ),
        migrations.AddField(
            model_name="consentevent",
            name="signed_on",
            field=models.DateField(blank=True, help_text="When it was decided on paper.", null=True),
        ),
        migrations.AlterField(
            model_name="consentevent",
            name="channel",
            field=models.CharField(
                choices=[("form", "consent form"), ("staff", "recorded by staff"), ("paper", "on paper")],
                default="form",
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="consentevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("channel", "paper"), _negated=True),
                    models.Q(models.Q(("evidence", ""), _negated=True), ("signed_on__isnull", False)),
                    _connector="OR",
                ),
                name="consent_on_paper_has_evidence_and_a_date",
            ),
        ),
    ]
