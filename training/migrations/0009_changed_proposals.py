"""Drafts can be changed and withdrawn by their proposers, on record."""

from importlib import import_module

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def chain_begins(apps, schema_editor):
    """Sign the head of the new, empty chain of every study."""
    studies = apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
    _heads_sign(apps, {(study, "training.proposalchange"): (0, GENESIS) for study in studies})


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0025_mail_opening'),
        ('training', '0008_proposals_with_a_key'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='revision',
            field=models.PositiveIntegerField(default=1, editable=False, help_text='Of the proposal: counted up with each change of the draft.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='status',
            field=models.CharField(choices=[('draft', 'draft'), ('approved', 'approved'), ('training', 'training teachers'), ('voting', 'voting'), ('asking', 'asking the holders'), ('learning', 'learning by private gradient steps'), ('student', 'training the student'), ('finished', 'finished'), ('failed', 'failed'), ('cancelled', 'cancelled'), ('withdrawn', 'withdrawn')], default='draft', max_length=10),
        ),
        migrations.CreateModel(
            name='ProposalChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('kind', models.CharField(choices=[('edited', 'changed'), ('withdrawn', 'withdrawn')], max_length=10)),
                ('revision', models.PositiveIntegerField(help_text='Of the proposal, from then on.')),
                ('content', models.JSONField(blank=True, default=list, help_text='Of each parameter that was changed: name, value before, value after.')),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('changed_by', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='changes', to='training.run')),
                ('study', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='proposal_changes', to='consent.study')),
            ],
            options={
                'verbose_name': 'change of a proposed run',
                'verbose_name_plural': 'changes of proposed runs',
                'ordering': ['sequence'],
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('study', 'sequence'), name='proposal_change_sequence_is_unique')],
            },
        ),
        migrations.RunPython(chain_begins, migrations.RunPython.noop),
    ]
