"""Texts of a study in all its languages, and what GDPR Articles 13 and 14 ask for besides."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0023_closings_and_erasures'),
    ]

    operations = [
        migrations.AddField(
            model_name='study',
            name='controller_address',
            field=models.TextField(blank=True, help_text='Postal address, as on a letter.', verbose_name='address of the controller'),
        ),
        migrations.AddField(
            model_name='study',
            name='data_protection_officer',
            field=models.TextField(blank=True, help_text='Name or office, and how to reach it. Empty: there is none.', verbose_name='data protection officer'),
        ),
        migrations.AddField(
            model_name='study',
            name='data_source',
            field=models.TextField(blank=True, help_text='Where the records come from, such as: your treatment at our clinic. It cannot be changed later.', verbose_name='source of the data'),
        ),
        migrations.AddField(
            model_name='study',
            name='supervisory_authority',
            field=models.TextField(blank=True, help_text='With which people can lodge a complaint: name and address.', verbose_name='supervisory authority'),
        ),
        migrations.AddField(
            model_name='study',
            name='translations',
            field=models.JSONField(blank=True, default=dict, editable=False, help_text='Texts of the study in other languages: code → field → text; see consent.study_texts.'),
        ),
        migrations.AlterField(
            model_name='study',
            name='recipients',
            field=models.TextField(blank=True, help_text='People or bodies beside the controller. Empty: nobody. If one is outside the European Union, say where, and what protects the records there.', verbose_name='who else sees raw records'),
        ),
    ]
