"""Datasets can be removed, and models withdrawn."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0005_students_kept'),
    ]

    operations = [
        migrations.AddField(
            model_name='dataset',
            name='removed_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When its arrays were deleted; the row stays for its runs.', null=True),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='withdrawal_reason',
            field=models.CharField(blank=True, editable=False, max_length=500),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='withdrawn_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
