"""The register takes note of stages of models."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounting', '0005_withdrawn_models'),
    ]

    operations = [
        migrations.AlterField(
            model_name='release',
            name='kind',
            field=models.CharField(choices=[('labels', 'labels'), ('counts', 'noisy counts'), ('steps', 'gradient steps'), ('head_counts', 'head counts'), ('model', 'student model'), ('choice', 'choice of the published student'), ('download', 'download'), ('withdrawal', 'model withdrawn'), ('stage', 'stage of a model'), ('gap', 'gap after a restore')], max_length=20),
        ),
    ]
