"""An archive is used by who uploaded it, and in the pools where it was used: no longer by whoever knows its digest."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("claims", "0009_sound")]

    operations = [
        migrations.AddField(
            model_name="source",
            name="users",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
    ]
