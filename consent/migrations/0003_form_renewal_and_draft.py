"""A form says what it means for earlier consents; the next one is written as a draft."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("consent", "0002_chain_heads"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="ConsentFormDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("texts", models.JSONField(default=dict)),
                ("saved_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "saved_by",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "study",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="consent_form_draft",
                        to="consent.study",
                    ),
                ),
            ],
            options={"verbose_name": "draft of a consent form"},
        ),
        migrations.AddField(
            model_name="consentform",
            name="renewal",
            field=models.CharField(
                choices=[
                    ("not_asked", "they are not asked again"),
                    ("asked", "they are asked again; their consent stands until they answer"),
                    ("required", "they are asked again; their consent does not count until they answer"),
                ],
                default="not_asked",
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="consentform",
            constraint=models.CheckConstraint(
                condition=models.Q(("renewal__in", ["not_asked", "asked", "required"])),
                name="consent_form_renewal_is_known",
            ),
        ),
    ]
