from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("consent", "0027_webhooks_and_staff_mails"),
    ]

    operations = [
        migrations.AddField(
            model_name="dataholder",
            name="linked_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When the account was linked; none where that was not noted.",
                null=True,
            ),
        ),
    ]
