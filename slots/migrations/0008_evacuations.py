"""Members that are being evacuated."""

import django.db.models.functions.datetime
from django.db import migrations, models

NOW = django.db.models.functions.datetime.Now()


class Migration(migrations.Migration):
    dependencies = [("slots", "0007_without_hold_stats")]

    operations = [
        migrations.CreateModel(
            name="Evacuation",
            fields=[
                ("member_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("by", models.CharField(max_length=80)),
                ("reason", models.TextField()),
                ("stays", models.BooleanField()),
                ("was_cordoned", models.BooleanField()),
                ("since", models.DateTimeField(db_default=NOW)),
                ("due_at", models.DateTimeField(db_default=NOW)),
                ("moved", models.IntegerField(db_default=0, default=0)),
                ("failed_in_row", models.SmallIntegerField(db_default=0, default=0)),
                ("claim_id", models.BigIntegerField(blank=True, null=True)),
                ("generation", models.BigIntegerField(blank=True, null=True)),
                ("moved_at", models.DateTimeField(blank=True, null=True)),
                ("left_slots", models.JSONField(default=dict)),
                ("was_ready", models.BooleanField(db_default=False, default=False)),
                ("waits_for", models.TextField(blank=True, default="")),
                ("stuck", models.JSONField(default=dict)),
                ("wanted", models.JSONField(default=dict)),
                ("is_scattered", models.BooleanField(db_default=False, default=False)),
                ("planned_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    ]
