"""What is always true of a slot by itself is one CHECK, because PostgreSQL reads the text of each anew for every statement."""

from django.db import migrations, models
from django.db.models import F

# A copy of what slots.rules declares; tests/database/test_transitions.py holds it against the declaration.
SQL = """
CREATE OR REPLACE FUNCTION is_slot_sound(state varchar, claim_id bigint, ordinal integer, drain_until timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF (state = ANY ('{draining,held,idle,reserved,retired}'))
    AND (CASE WHEN state = ANY ('{held,reserved}') THEN claim_id IS NOT NULL AND ordinal IS NOT NULL AND ordinal >= 0 ELSE claim_id IS NULL AND ordinal IS NULL END)
    AND (state <> 'draining' OR drain_until IS NOT NULL) THEN
    RETURN true;
  END IF;
  IF NOT (state = ANY ('{draining,held,idle,reserved,retired}')) THEN
    RAISE EXCEPTION 'new row for relation "slots_slot" violates check constraint "slot_state_known"'
      USING ERRCODE = 'check_violation', TABLE = 'slots_slot', CONSTRAINT = 'slot_state_known';
  END IF;
  IF NOT (CASE WHEN state = ANY ('{held,reserved}') THEN claim_id IS NOT NULL AND ordinal IS NOT NULL AND ordinal >= 0 ELSE claim_id IS NULL AND ordinal IS NULL END) THEN
    RAISE EXCEPTION 'new row for relation "slots_slot" violates check constraint "slot_holder"'
      USING ERRCODE = 'check_violation', TABLE = 'slots_slot', CONSTRAINT = 'slot_holder';
  END IF;
  IF NOT (state <> 'draining' OR drain_until IS NOT NULL) THEN
    RAISE EXCEPTION 'new row for relation "slots_slot" violates check constraint "slot_drain"'
      USING ERRCODE = 'check_violation', TABLE = 'slots_slot', CONSTRAINT = 'slot_drain';
  END IF;
  RETURN true;
END $$;
"""
UNDO = "DROP FUNCTION IF EXISTS is_slot_sound;"
# Each slot is written again and again, and no update is HOT: pages with room split and are cleaned less often.
ROOMY = """
ALTER INDEX slots_slot_pkey SET (fillfactor = 50);
ALTER INDEX slot_place SET (fillfactor = 50);
"""
TIGHT = """
ALTER INDEX slots_slot_pkey RESET (fillfactor);
ALTER INDEX slot_place RESET (fillfactor);
"""
CHECK = models.CheckConstraint(
    name="slot_sound",
    condition=models.Func(
        F("state"), F("claim_id"), F("ordinal"), F("drain_until"), function="is_slot_sound", output_field=models.BooleanField()
    ),
)


class Migration(migrations.Migration):
    dependencies = [("slots", "0002_rules")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.AddConstraint("slot", CHECK),
        migrations.RemoveConstraint("slot", "slot_state_known"),
        migrations.RemoveConstraint("slot", "slot_holder"),
        migrations.RemoveConstraint("slot", "slot_drain"),
        migrations.RunSQL(ROOMY, TIGHT),
    ]
