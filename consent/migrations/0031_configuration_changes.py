"""Chains of the changes of a study's configuration; the changes of accounts become a chain."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0030_roles_by_two'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ConfigurationChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('model', models.CharField(help_text="Label of the row's model.", max_length=50)),
                ('row', models.CharField(help_text='Key of the row.', max_length=36)),
                ('before', models.JSONField(blank=True, help_text='Field → value; of a change what changed. Null: added.', null=True)),
                ('after', models.JSONField(blank=True, help_text='Field → value; of a change what changed. Null: removed.', null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'change of the configuration',
                'verbose_name_plural': 'changes of the configuration',
                'ordering': ['sequence'],
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='InstallationHead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('chain', models.CharField(help_text='The model whose rows are chained.', max_length=100)),
                ('sequence', models.PositiveBigIntegerField(default=0)),
                ('hash', models.CharField(default='0000000000000000000000000000000000000000000000000000000000000000', max_length=64)),
                ('signature', models.CharField(blank=True, max_length=100)),
            ],
            options={
                'verbose_name': 'head of a chain of the installation',
            },
        ),
        migrations.CreateModel(
            name='SealedChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sequence', models.PositiveBigIntegerField(editable=False)),
                ('previous_hash', models.CharField(editable=False, max_length=64)),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('model', models.CharField(help_text="Label of the row's model.", max_length=50)),
                ('row', models.CharField(help_text='Key of the row.', max_length=36)),
                ('before', models.JSONField(blank=True, help_text='Field → value; of a change what changed. Null: added.', null=True)),
                ('after', models.JSONField(blank=True, help_text='Field → value; of a change what changed. Null: removed.', null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'sealed change',
                'verbose_name_plural': 'sealed changes',
                'ordering': ['sequence'],
                'abstract': False,
            },
        ),
        migrations.AlterModelOptions(
            name='accountchange',
            options={'ordering': ['sequence'], 'verbose_name': 'change of an account', 'verbose_name_plural': 'changes of accounts'},
        ),
        migrations.RemoveConstraint(
            model_name='accountchange',
            name='account_change_kind_is_known',
        ),
        migrations.AddField(
            model_name='accountchange',
            name='hash',
            field=models.CharField(default='', editable=False, max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='accountchange',
            name='previous_hash',
            field=models.CharField(default='', editable=False, max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='accountchange',
            name='sequence',
            field=models.PositiveBigIntegerField(default=0, editable=False),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name='accountchange',
            name='kind',
            field=models.CharField(choices=[('created', 'account made'), ('changed', "account changed in the admin"), ('invited', 'link for a password sent again'), ('appointed', 'made an administrator'), ('dismissed', 'no longer an administrator'), ('closed', 'account closed'), ('reopened', 'account opened again'), ('superuser', 'made a superuser'), ('no_superuser', 'no longer a superuser'), ('admin', 'let into the site administration'), ('no_admin', 'no longer let into the site administration'), ('deleted', 'account deleted'), ("reviewed", "has reviewed all accounts of staff after a restored backup"),], max_length=20),
        ),
        migrations.AddConstraint(
            model_name='accountchange',
            constraint=models.UniqueConstraint(fields=('sequence',), name='account_change_sequence_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='accountchange',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['created', 'changed', 'invited', 'appointed', 'dismissed', 'closed', 'reopened', 'superuser', 'no_superuser', 'admin', "no_admin", "deleted", "reviewed",])), name='account_change_kind_is_known'),
        ),
        migrations.AddField(
            model_name='configurationchange',
            name='changed_by',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='Empty: the command line, a date, or a data holder.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='configurationchange',
            name='study',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='consent.study'),
        ),
        migrations.AddConstraint(
            model_name='installationhead',
            constraint=models.UniqueConstraint(fields=('chain',), name='a_chain_of_the_installation_has_one_head'),
        ),
        migrations.AddField(
            model_name='sealedchange',
            name='changed_by',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='Empty: the command line, a date, or a data holder.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='sealedchange',
            name='study',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='consent.study'),
        ),
        migrations.AddConstraint(
            model_name='configurationchange',
            constraint=models.UniqueConstraint(fields=('study', 'sequence'), name='configuration_change_sequence_is_unique'),
        ),
        migrations.AddIndex(
            model_name='sealedchange',
            index=models.Index(fields=['study', 'model', 'row'], name='sealed_change_of_row'),
        ),
        migrations.AddConstraint(
            model_name='sealedchange',
            constraint=models.UniqueConstraint(fields=('study', 'sequence'), name='sealed_change_sequence_is_unique'),
        ),
    ]
