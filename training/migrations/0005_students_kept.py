import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


def published_note(apps, schema_editor):
    """Note of every run with a student that it is the published one; its seed is that of the run."""
    Run = apps.get_model('training', 'Run')
    for student in apps.get_model('training', 'StudentModel').objects.select_related('run'):
        student.seed = student.run.seed or 0
        student.save(update_fields=['seed'])
        Run.objects.filter(pk=student.run_id).update(student=student)


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0004_sampled_steps'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name='studentmodel',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='students', to='training.run'),
        ),
        migrations.CreateModel(
            name='StudentTraining',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(choices=[('pending', 'pending'), ('running', 'running'), ('done', 'done')], default='pending', max_length=10)),
                ('artifact', models.CharField(blank=True, help_text='What came of it, in private storage.', max_length=200)),
                ('claimed_by', models.CharField(blank=True, max_length=80)),
                ('heartbeat', models.DateTimeField(blank=True, null=True)),
                ('deaths', models.PositiveIntegerField(default=0, help_text='How many workers died over it.')),
                ('learner', models.CharField(max_length=40)),
                ('parameters', models.JSONField(blank=True, default=dict)),
                ('progress', models.FloatField(default=0.0, help_text='How much is done, 0 to 1.')),
                ('message', models.TextField(blank=True, help_text='Why nothing came of it, and what to do.')),
                ('asked_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'training of a student',
                'verbose_name_plural': 'trainings of students',
                'ordering': ['run', 'asked_at'],
            },
        ),
        migrations.AddField(
            model_name='run',
            name='student',
            field=models.ForeignKey(blank=True, editable=False, help_text='The published version of its student.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.studentmodel'),
        ),
        migrations.AddField(
            model_name='run',
            name='student_progress',
            field=models.FloatField(blank=True, editable=False, help_text='How much of the training of a student under way is done.', null=True),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='asked_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='reference',
            field=models.JSONField(blank=True, help_text='How the same student does on true labels of the public points.', null=True),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='score',
            field=models.FloatField(blank=True, help_text='Agreement with a fifth of the releases, having learned from the others.', null=True),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='seconds',
            field=models.FloatField(blank=True, help_text='How long it learned.', null=True),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='seed',
            field=models.PositiveBigIntegerField(default=0, help_text='Public: the same releases and seed give the same model.'),
        ),
        migrations.AddField(
            model_name='studentmodel',
            name='version',
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddConstraint(
            model_name='studentmodel',
            constraint=models.UniqueConstraint(fields=('run', 'version'), name='student_version_is_unique'),
        ),
        migrations.AddField(
            model_name='studenttraining',
            name='asked_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='studenttraining',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='trainings', to='training.run'),
        ),
        migrations.AddField(
            model_name='studenttraining',
            name='version',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='assessment', to='training.studentmodel'),
        ),
        migrations.AddConstraint(
            model_name='studenttraining',
            constraint=models.UniqueConstraint(condition=models.Q(('version__isnull', True), models.Q(('state', 'done'), _negated=True)), fields=('run',), name='one_version_of_a_student_is_trained_at_a_time'),
        ),
        migrations.RunPython(published_note, migrations.RunPython.noop),
    ]
