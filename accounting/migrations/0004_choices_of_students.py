from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounting', '0003_gradient_steps'),
    ]

    operations = [
        migrations.AlterField(
            model_name='release',
            name='kind',
            field=models.CharField(choices=[('labels', 'labels'), ('counts', 'noisy counts'), ('steps', 'gradient steps'), ('head_counts', 'head counts'), ('model', 'student model'), ('choice', 'choice of the published student'), ('download', 'download'), ('gap', 'gap after a restore')], max_length=20),
        ),
    ]
