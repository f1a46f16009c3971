"""Rename fields: who requested something and when, and whether operators were notified of a silent site."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("training", "0001_initial")]

    operations = [
        migrations.RenameField("alliance", "silence_told", "silence_is_known"),
        migrations.RenameField("jointquestion", "silence_told", "silence_is_known"),
        migrations.RenameField("datasetimport", "asked_by", "requested_by"),
        migrations.RenameField("studentmodel", "asked_by", "requested_by"),
        migrations.RenameField("studenttraining", "asked_by", "requested_by"),
        migrations.RenameField("studenttraining", "asked_at", "requested_at"),
        migrations.AlterModelOptions(
            "studenttraining",
            {
                "verbose_name": "training of a student",
                "verbose_name_plural": "trainings of students",
                "ordering": ["run", "requested_at"],
            },
        ),
    ]
