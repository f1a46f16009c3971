"""Who answers for holders, consents that end at a day, letters, closed accounts; see docs/consent.md."""

from importlib import import_module

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from common.append_only import GENESIS

_heads_sign = import_module("consent.migrations.0002_chain_heads").heads_sign


def chains_begin(apps, schema_editor):
    """Sign the heads of the new, empty chains of every study."""
    studies = apps.get_model("consent", "Study").objects.values_list("pk", flat=True)
    _heads_sign(apps, {(study, "consent.circumstance"): (0, GENESIS) for study in studies})


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0021_proposals_and_remarks'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Circumstance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('kind', models.CharField(choices=[('person', 'the person answers'), ('guardian', 'a parent or guardian answers'), ('proxy', 'a legal proxy answers'), ('incapable', 'the person can no longer decide'), ('died', 'the person has died')], max_length=10)),
                ('until', models.DateField(blank=True, null=True)),
                ('reason', models.CharField(max_length=500)),
                ('recorded_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'circumstance of a holder',
                'verbose_name_plural': 'circumstances of holders',
                'ordering': ['sequence'],
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Letter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('new_form', 'new information, decide again'), ('renewal', 'the consent ends or has ended, decide again'), ('answerer', 'somebody else answers now'), ('receipt', 'receipt of a decision on paper')], max_length=10)),
                ('about', models.CharField(help_text='Key of the row that it is about.', max_length=40)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'letter',
                'ordering': ['-made_at', '-pk'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='accountchange',
            name='account_change_kind_is_known',
        ),
        migrations.RemoveIndex(
            model_name='consentevent',
            name='consent_event_last',
        ),
        migrations.AddField(
            model_name='consentevent',
            name='answered_by',
            field=models.CharField(choices=[('person', 'the person'), ('guardian', 'parent or guardian'), ('proxy', 'legal proxy')], default='person', max_length=10),
        ),
        migrations.AddField(
            model_name='consentevent',
            name='renew_by',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='consentform',
            name='valid_months',
            field=models.PositiveSmallIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(600)]),
        ),
        migrations.AddField(
            model_name='consentform',
            name='valid_until',
            field=models.DateField(blank=True, help_text='The last day on which a consent counts.', null=True),
        ),
        migrations.AddField(
            model_name='consentformproposal',
            name='valid_months',
            field=models.PositiveSmallIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(600)]),
        ),
        migrations.AddField(
            model_name='consentformproposal',
            name='valid_until',
            field=models.DateField(blank=True, help_text='The last day on which a consent counts.', null=True),
        ),
        migrations.AddField(
            model_name='study',
            name='after_death',
            field=models.CharField(choices=[('ends', 'consent ends: the records are used in nothing new'), ('stands', 'consent stands')], default='ends', help_text='Holders are told before they decide.', max_length=10, verbose_name='when somebody has died'),
        ),
        migrations.AddField(
            model_name='study',
            name='after_incapacity',
            field=models.CharField(choices=[('ends', 'consent ends: the records are used in nothing new'), ('stands', 'consent stands')], default='ends', help_text='Holders are told before they decide. Where it ends, a legal proxy is asked anew.', max_length=10, verbose_name='when somebody can no longer decide'),
        ),
        migrations.AlterField(
            model_name='accountchange',
            name='kind',
            field=models.CharField(choices=[('created', 'account made'), ('invited', 'link for a password sent again'), ('appointed', 'made an administrator'), ('dismissed', 'no longer an administrator'), ('closed', 'account closed'), ('reopened', 'account opened again')], max_length=10),
        ),
        migrations.AddIndex(
            model_name='consentevent',
            index=models.Index(fields=['holder', '-sequence'], include=('study', 'kind', 'level', 'form', 'policy', 'recorded_at', 'answered_by', 'renew_by'), name='consent_event_last'),
        ),
        migrations.AddIndex(
            model_name='consentevent',
            index=models.Index(condition=models.Q(('renew_by__isnull', False)), fields=['renew_by'], name='consent_event_renew_by'),
        ),
        migrations.AddConstraint(
            model_name='accountchange',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['created', 'invited', 'appointed', 'dismissed', 'closed', 'reopened'])), name='account_change_kind_is_known'),
        ),
        migrations.AddConstraint(
            model_name='consentevent',
            constraint=models.CheckConstraint(condition=models.Q(('answered_by__in', ['person', 'guardian', 'proxy'])), name='consent_event_says_who_answered'),
        ),
        migrations.AddConstraint(
            model_name='consentform',
            constraint=models.CheckConstraint(condition=models.Q(('valid_months', None), ('valid_until', None), _connector='OR'), name='consent_form_has_one_validity'),
        ),
        migrations.AddConstraint(
            model_name='consentformproposal',
            constraint=models.CheckConstraint(condition=models.Q(('valid_months', None), ('valid_until', None), _connector='OR'), name='consent_form_proposal_has_one_validity'),
        ),
        migrations.AddConstraint(
            model_name='study',
            constraint=models.CheckConstraint(condition=models.Q(('after_death__in', ['ends', 'stands']), ('after_incapacity__in', ['ends', 'stands'])), name='study_says_what_ends_a_consent'),
        ),
        migrations.AddField(
            model_name='circumstance',
            name='holder',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='circumstances', to='consent.dataholder'),
        ),
        migrations.AddField(
            model_name='circumstance',
            name='recorded_by',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='circumstance',
            name='study',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='circumstances', to='consent.study'),
        ),
        migrations.AddField(
            model_name='letter',
            name='holder',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='letters', to='consent.dataholder'),
        ),
        migrations.AddField(
            model_name='letter',
            name='made_by',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='letter',
            name='study',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='letters', to='consent.study'),
        ),
        migrations.AddConstraint(
            model_name='circumstance',
            constraint=models.UniqueConstraint(fields=('study', 'sequence'), name='circumstance_sequence_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='circumstance',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'guardian'), ('until__isnull', False)), ('kind', 'proxy'), models.Q(('kind__in', ['person', 'incapable', 'died']), ('until', None)), _connector='OR'), name='circumstance_has_a_day_where_it_needs_one'),
        ),
        migrations.AddIndex(
            model_name='letter',
            index=models.Index(fields=['study', 'kind', 'about'], name='letter_about'),
        ),
        migrations.AddConstraint(
            model_name='letter',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['new_form', 'renewal', 'answerer', 'receipt'])), name='letter_kind_is_known'),
        ),
        migrations.RunPython(chains_begin, migrations.RunPython.noop),
    ]
