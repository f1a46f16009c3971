from django.db import migrations, models


def learners_note(apps, schema_editor):
    """Note of every published model which learner reads it: so far the student learner of its run."""
    for student in apps.get_model('training', 'StudentModel').objects.select_related('run'):
        student.learner = student.run.student_learner
        student.save(update_fields=['learner'])


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0018_stewards'),
        ('training', '0002_every_holder_votes'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='round', name='round_position_within_queries'),
        migrations.RemoveConstraint(model_name='run', name='one_run_of_a_study_votes_at_a_time'),
        migrations.RenameModel('VoteBatch', 'Batch'),
        migrations.RenameField('batch', 'queries', 'size'),
        migrations.RenameField('round', 'queries', 'size'),
        migrations.AddField(
            model_name='studentmodel',
            name='learner',
            field=models.CharField(default='', help_text='The learner that reads it.', max_length=40),
            preserve_default=False,
        ),
        migrations.RunPython(learners_note, migrations.RunPython.noop),
        migrations.AlterModelOptions(
            name='batch',
            options={'ordering': ['run', 'index'], 'verbose_name': 'batch', 'verbose_name_plural': 'batches'},
        ),
        migrations.AddField(
            model_name='batch',
            name='released',
            field=models.CharField(blank=True, help_text="What was released, where that is no query's: a file, public.", max_length=200),
        ),
        migrations.AlterField(
            model_name='batch',
            name='labels',
            field=models.PositiveIntegerField(help_text='How many of its queries were answered.'),
        ),
        migrations.AlterField(
            model_name='batch',
            name='size',
            field=models.PositiveIntegerField(help_text='How many queries or steps it has.'),
        ),
        migrations.AlterField(
            model_name='round',
            name='position',
            field=models.PositiveIntegerField(default=0, help_text='How many of them were released.'),
        ),
        migrations.AlterField(
            model_name='round',
            name='radius_share',
            field=models.FloatField(blank=True, help_text='Of votes: the share of the public points within the radius of a query.', null=True),
        ),
        migrations.AlterField(
            model_name='round',
            name='sigma',
            field=models.FloatField(help_text='Standard deviation of the noise of each number, in units of the largest norm.'),
        ),
        migrations.AlterField(
            model_name='round',
            name='size',
            field=models.PositiveIntegerField(help_text='How many queries are asked, or steps taken.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='asking',
            field=models.JSONField(blank=True, default=dict, help_text='Where every holder is asked: representation, rounds, noise and so on, as far as they were chosen.', verbose_name='how the holders are asked'),
        ),
        migrations.AlterField(
            model_name='run',
            name='labels',
            field=models.PositiveIntegerField(default=0, help_text='How many of the points were answered.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='method',
            field=models.CharField(choices=[('neighbours', 'every holder votes'), ('pate', 'teachers vote'), ('sgd', 'private gradient steps')], default='pate', max_length=20, verbose_name='method'),
        ),
        migrations.AlterField(
            model_name='run',
            name='position',
            field=models.PositiveIntegerField(default=0, help_text='Public points put to the vote, or gradient steps taken, so far.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='status',
            field=models.CharField(choices=[('draft', 'draft'), ('approved', 'approved'), ('training', 'training teachers'), ('voting', 'voting'), ('asking', 'asking the holders'), ('learning', 'learning by private gradient steps'), ('student', 'training the student'), ('finished', 'finished'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='draft', max_length=10),
        ),
        migrations.AlterField(
            model_name='run',
            name='stop_reason',
            field=models.CharField(blank=True, choices=[('used_up', 'every public point was put to the vote'), ('enough', 'the wanted number of labels was reached'), ('share', "the run's share was used up"), ('retired', 'no group was left to vote'), ('steps', 'every planned step was taken')], max_length=10),
        ),
        migrations.AlterField(
            model_name='run',
            name='variant',
            field=models.CharField(blank=True, choices=[('standard', 'standard'), ('upsampling', 'upsampling'), ('weighting', 'weighting'), ('vanishing', 'vanishing'), ('individual', 'everyone is charged for their own gradients')], default='weighting', max_length=20, verbose_name='variant'),
        ),
        migrations.AddConstraint(
            model_name='round',
            constraint=models.CheckConstraint(condition=models.Q(('position__lte', models.F('size'))), name='round_position_within_size'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('rehearsal', False), ('status__in', ('voting', 'asking', 'learning'))), fields=('study',), name='one_run_of_a_study_spends_at_a_time'),
        ),
    ]
