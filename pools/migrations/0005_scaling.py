"""Scaling: a freeze that is in force, and a pause of the scaler alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pools", "0004_restarts")]
    operations = [
        migrations.AddField(model_name="pool", name="frozen_until", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="pool", name="freeze_reason", field=models.TextField(blank=True, db_default="", default="")),
        migrations.AddField(model_name="pool", name="scaling_paused_until", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="pool", name="scaling_pause_reason", field=models.TextField(blank=True, db_default="", default="")),
    ]
