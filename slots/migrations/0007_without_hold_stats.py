"""No code ever wrote or read hold_stats."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("slots", "0006_drift")]
    operations = [migrations.DeleteModel("HoldStat")]
