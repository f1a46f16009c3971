"""Published models have a stage."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0009_changed_proposals'),
    ]

    operations = [
        migrations.AddField(
            model_name='studentmodel',
            name='stage',
            field=models.CharField(choices=[('candidate', 'candidate'), ('production', 'in production'), ('archived', 'archived')], default='candidate', editable=False, max_length=10),
        ),
    ]
