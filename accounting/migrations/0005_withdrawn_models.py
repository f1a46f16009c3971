"""The register takes note of withdrawn models."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounting', '0004_choices_of_students'),
    ]

    operations = [
        migrations.AlterField(
            model_name='release',
            name='kind',
            field=models.CharField(choices=[('labels', 'labels'), ('counts', 'noisy counts'), ('steps', 'gradient steps'), ('head_counts', 'head counts'), ('model', 'student model'), ('choice', 'choice of the published student'), ('download', 'download'), ('withdrawal', 'model withdrawn'), ('gap', 'gap after a restore')], max_length=20),
        ),
    ]
