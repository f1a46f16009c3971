from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0015_verification'),
    ]

    operations = [
        migrations.RenameField('run', 'voting_at', 'spending_began_at'),
    ]
