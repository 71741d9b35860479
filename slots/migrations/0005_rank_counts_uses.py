"""A negative rank counts the uses of its slot, see pools/config/placement.py."""

from django.db import migrations

SQL = """
CREATE FUNCTION raise_rank() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.rank := NEW.rank + 1;
  RETURN NEW;
END $$;
CREATE TRIGGER slot_counts_use BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (NEW.rank < 0 AND OLD.claim_id IS NULL AND NEW.claim_id IS NOT NULL) EXECUTE FUNCTION raise_rank();
"""
UNDO = """
DROP TRIGGER IF EXISTS slot_counts_use ON slots_slot;
DROP FUNCTION IF EXISTS raise_rank;
"""


class Migration(migrations.Migration):
    dependencies = [("slots", "0004_rescued_states")]
    operations = [migrations.RunSQL(SQL, UNDO)]
