"""Restarts: since when a member is what it is, whether it is known not to run, and whether anybody still tries."""

import django.db.models.functions.datetime
from django.db import migrations, models

NOT_GONE = models.Q(("state", "gone"), _negated=True)


class Migration(migrations.Migration):
    dependencies = [("pools", "0003_lost_members")]
    operations = [
        migrations.AddField(
            model_name="member",
            name="state_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AddField(model_name="member", name="down_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="member", name="is_down_planned", field=models.BooleanField(db_default=False, default=False)),
        migrations.AddField(model_name="member", name="gave_up_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddIndex(
            model_name="member", index=models.Index(fields=["id"], condition=models.Q(("state", "offline")), name="member_offline")
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(fields=["id"], condition=models.Q(("restarts__gt", 0), NOT_GONE), name="member_restarted"),
        ),
    ]
