"""The database refuses a run that its proposer approves."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('consent', '0031_configuration_changes'),
        ('training', '0012_preparation'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('created_by', None), ('approved_by', None), models.Q(('approved_by', models.F('created_by')), _negated=True), _connector='OR'), name='run_is_approved_by_a_second_person'),
        ),
    ]
