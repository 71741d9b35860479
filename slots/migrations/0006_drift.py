"""An index of the slots that differ outside: the overview counts them."""

from django.db import migrations

DRIFT = """
CREATE INDEX slot_drift ON slots_slot (member_id) WHERE observed->>'presence' IN ('missing', 'foreign')
"""


class Migration(migrations.Migration):
    dependencies = [("slots", "0005_rank_counts_uses")]
    operations = [
        migrations.RunSQL(DRIFT, "DROP INDEX IF EXISTS slot_drift"),
    ]
