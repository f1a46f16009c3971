"""Consent forms that ask holders again are proposed and approved; proposals are rejected and commented on, on record."""

from importlib import import_module

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def chains_begin(apps, schema_editor):
    """Sign the heads of the new, empty chains of every study."""
    studies = apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
    chains = ("consent.consentformproposal", "consent.remark")
    _heads_sign(apps, {(study, chain): (0, GENESIS) for study in studies for chain in chains})


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0020_links_and_accounts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Remark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('kind', models.CharField(choices=[('comment', 'comment'), ('rejection', 'rejected')], max_length=10)),
                ('text', models.TextField(verbose_name='text')),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'remark on a proposal',
                'verbose_name_plural': 'remarks on proposals',
                'ordering': ['sequence'],
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='consentform',
            name='proposed_by',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='consentevent',
            name='kind',
            field=models.CharField(choices=[('given', 'consent given'), ('changed', 'consent given again'), ('withdrawn', 'consent withdrawn'), ('refused', 'refused')], max_length=10),
        ),
        migrations.CreateModel(
            name='ConsentFormProposal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('follows', models.PositiveIntegerField()),
                ('texts', models.JSONField()),
                ('digest', models.CharField(help_text='SHA-256 of the canonical JSON of texts.', max_length=64)),
                ('renewal', models.CharField(choices=[('not_asked', 'they are not asked again'), ('asked', 'they are asked again; their consent stands until they answer'), ('required', 'they are asked again; their consent does not count until they answer')], max_length=10)),
                ('proposed_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('proposed_by', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('study', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='consent_form_proposals', to='consent.study')),
            ],
            options={
                'verbose_name': 'proposed consent form',
                'verbose_name_plural': 'proposed consent forms',
                'ordering': ['sequence'],
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='consentform',
            name='proposal',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='form', to='consent.consentformproposal'),
        ),
        migrations.AddConstraint(
            model_name='consentform',
            constraint=models.CheckConstraint(condition=models.Q(('proposed_by', None), models.Q(('published_by', models.F('proposed_by')), _negated=True), _connector='OR'), name='consent_form_is_approved_by_a_second_person'),
        ),
        migrations.AddField(
            model_name='remark',
            name='form',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='remarks', to='consent.consentformproposal'),
        ),
        migrations.AddField(
            model_name='remark',
            name='made_by',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='remark',
            name='policy',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='remarks', to='consent.epsilonpolicy'),
        ),
        migrations.AddField(
            model_name='remark',
            name='study',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='remarks', to='consent.study'),
        ),
        migrations.AddConstraint(
            model_name='consentformproposal',
            constraint=models.UniqueConstraint(fields=('study', 'sequence'), name='consent_form_proposal_sequence_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='consentformproposal',
            constraint=models.CheckConstraint(condition=models.Q(('renewal__in', ['asked', 'required'])), name='consent_form_proposal_asks_again'),
        ),
        migrations.AddConstraint(
            model_name='remark',
            constraint=models.UniqueConstraint(fields=('study', 'sequence'), name='remark_sequence_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='remark',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'rejection')), fields=('policy',), name='epsilon_policy_is_rejected_once'),
        ),
        migrations.AddConstraint(
            model_name='remark',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'rejection')), fields=('form',), name='consent_form_proposal_is_rejected_once'),
        ),
        migrations.AddConstraint(
            model_name='remark',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['comment', 'rejection'])), name='remark_kind_is_known'),
        ),
        migrations.AddConstraint(
            model_name='remark',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('form__isnull', False), ('policy', None)), models.Q(('form', None), ('policy__isnull', False)), _connector='OR'), name='remark_is_about_one_proposal'),
        ),
        migrations.RunPython(chains_begin, migrations.RunPython.noop),
    ]
