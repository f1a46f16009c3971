"""Closings of studies and erasures of records, on record."""

from importlib import import_module

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def chains_begin(apps, schema_editor):
    """Sign the head of the new, empty chain of every study."""
    studies = apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
    _heads_sign(apps, {(study, "consent.disposal"): (0, GENESIS) for study in studies})


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0022_circumstances_and_validity'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='dataholder',
            name='erased_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When their records were erased; from then on the pseudonym is a keyed commitment to it.', null=True),
        ),
        migrations.AddField(
            model_name='study',
            name='after_withdrawal',
            field=models.CharField(choices=[('erased', 'they are erased'), ('asked', 'the person decides whether they are erased')], default='asked', help_text='Holders read it before they decide, and it is carried out.', max_length=10, verbose_name='stored records after a withdrawal'),
        ),
        migrations.AddField(
            model_name='study',
            name='closed_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='study',
            name='expired_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When the private records of the closed study were erased.', null=True),
        ),
        migrations.AddField(
            model_name='study',
            name='retention_until',
            field=models.DateField(blank=True, help_text='On the day after it the study is closed and its private records are erased. Empty: no such day.', null=True, verbose_name='last day of the records'),
        ),
        migrations.CreateModel(
            name='Disposal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('kind', models.CharField(choices=[('asked', "erasure of a person's records was asked for"), ('erased', "a person's records were erased"), ('dataset', 'dataset removed'), ('closed', 'study closed'), ('expired', 'all private records erased')], max_length=10)),
                ('subject', models.CharField(blank=True, help_text='Name of the dataset.', max_length=100)),
                ('rows', models.PositiveIntegerField(blank=True, help_text='How many rows of private datasets were erased.', null=True)),
                ('files', models.PositiveIntegerField(blank=True, help_text='How many scans of letters were erased.', null=True)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('recorded_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('holder', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='disposals', to='consent.dataholder')),
                ('recorded_by', models.ForeignKey(db_constraint=False, help_text="Empty: the holder by their link, the study's rule, or a date.", null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('study', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='disposals', to='consent.study')),
            ],
            options={
                'verbose_name': 'closing or erasure',
                'verbose_name_plural': 'closings and erasures',
                'ordering': ['sequence'],
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('study', 'sequence'), name='disposal_sequence_is_unique'), models.CheckConstraint(condition=models.Q(models.Q(('holder__isnull', False), ('kind__in', ['asked', 'erased'])), models.Q(('holder__isnull', True), ('kind__in', ['dataset', 'closed', 'expired'])), _connector='OR'), name='disposal_kind_is_known_and_says_of_whom')],
            },
        ),
        migrations.RunPython(chains_begin, migrations.RunPython.noop),
    ]
