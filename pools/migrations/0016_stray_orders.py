"""Orders of people and pools to delete objects without a member."""

from django.db import migrations, models

EMPTY = models.Value([], models.JSONField())


class Migration(migrations.Migration):
    dependencies = [("pools", "0015_listeners")]
    operations = [
        migrations.AddField("pool", "stray_orders", models.JSONField(db_default=EMPTY, default=list)),
    ]
