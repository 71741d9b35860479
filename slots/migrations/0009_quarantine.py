"""Slots that no claim gets until a person ends their quarantine."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slots", "0008_evacuations")]
    operations = [
        migrations.CreateModel(
            "Quarantine",
            [
                ("slot_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("pool_id", models.BigIntegerField()),
                ("reason", models.TextField()),
                ("by_user", models.CharField(max_length=80)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"indexes": [models.Index(fields=["pool_id"], name="quarantine_of_pool")]},
        ),
    ]
