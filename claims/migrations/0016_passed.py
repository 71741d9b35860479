"""A claim that waits counts the slots that others take past it, and may be passed by no more than it needs itself."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("claims", "0015_approval_users"),
    ]

    operations = [
        migrations.AddField(
            model_name="claim",
            name="passed",
            field=models.SmallIntegerField(default=0, db_default=0),
        ),
    ]
