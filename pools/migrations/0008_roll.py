"""Rolls: what a member was made from, what the pool makes them from now, and how far the members' renewal is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pools", "0007_draining")]
    operations = [
        migrations.AddField(
            model_name="pool", name="member_digest", field=models.CharField(blank=True, db_default="", default="", max_length=64)
        ),
        migrations.AddField(model_name="pool", name="surge_id", field=models.BigIntegerField(blank=True, null=True)),
        migrations.AddField(
            model_name="pool", name="roll_ordered", field=models.CharField(blank=True, db_default="", default="", max_length=64)
        ),
        migrations.AddField(model_name="pool", name="roll_paused_until", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="pool", name="roll_pause_reason", field=models.TextField(blank=True, db_default="", default="")),
        migrations.AddField(model_name="pool", name="roll_stopped_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="pool", name="roll_stop_reason", field=models.TextField(blank=True, db_default="", default="")),
    ]
