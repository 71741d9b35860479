"""What may never happen to a slot. The WHEN clause is the rule; the function is called only to refuse."""

from django.db import migrations

SQL = """
CREATE TRIGGER slot_move BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ('{draining>held,draining>idle,draining>retired,held>draining,held>idle,held>reserved,held>retired,idle>held,idle>reserved,idle>retired,reserved>draining,reserved>held,reserved>idle,reserved>retired,retired>idle}'))
  EXECUTE FUNCTION refuse('no such move');
CREATE TRIGGER slot_not_stolen BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (OLD.claim_id <> NEW.claim_id) EXECUTE FUNCTION refuse('held by another claim');
CREATE TRIGGER slot_generation_rises BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (NEW.generation < OLD.generation OR (NEW.generation = OLD.generation AND NEW.claim_id IS NOT NULL AND OLD.claim_id IS NULL))
  EXECUTE FUNCTION refuse('a hand-over draws a new generation');
CREATE TRIGGER slot_drains_first BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (OLD.state = 'draining' AND NEW.state = 'held' AND NEW.claim_id IS DISTINCT FROM OLD.last_claim_id)
  EXECUTE FUNCTION refuse('drains for another claim');
CREATE TRIGGER slot_open_to_new BEFORE UPDATE ON slots_slot FOR EACH ROW
  WHEN (OLD.claim_id IS NULL AND NEW.claim_id IS NOT NULL AND NOT OLD.is_open)
  EXECUTE FUNCTION refuse('closed: cordoned, offline or leaving');
CREATE TRIGGER slot_born_free BEFORE INSERT ON slots_slot FOR EACH ROW
  WHEN (NEW.claim_id IS NOT NULL) EXECUTE FUNCTION refuse('born held');
CREATE TRIGGER slot_kept BEFORE DELETE ON slots_slot FOR EACH ROW
  WHEN (OLD.claim_id IS NOT NULL) EXECUTE FUNCTION refuse('held');

CREATE FUNCTION member_is_empty() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF EXISTS (SELECT FROM slots_slot WHERE member_id = NEW.id AND (is_open OR state NOT IN ('idle', 'retired'))) THEN
    RAISE EXCEPTION 'member %: has open or occupied slots', NEW.id USING ERRCODE = 'BR001', CONSTRAINT = TG_NAME;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER member_leaves_empty BEFORE UPDATE ON pools_member FOR EACH ROW
  WHEN (NEW.state IN ('deleting', 'gone') AND OLD.state NOT IN ('deleting', 'gone')) EXECUTE FUNCTION member_is_empty();
"""
UNDO = """
DROP TRIGGER IF EXISTS member_leaves_empty ON pools_member;
DROP FUNCTION IF EXISTS member_is_empty;
DROP TRIGGER IF EXISTS slot_move ON slots_slot;
DROP TRIGGER IF EXISTS slot_not_stolen ON slots_slot;
DROP TRIGGER IF EXISTS slot_generation_rises ON slots_slot;
DROP TRIGGER IF EXISTS slot_drains_first ON slots_slot;
DROP TRIGGER IF EXISTS slot_open_to_new ON slots_slot;
DROP TRIGGER IF EXISTS slot_born_free ON slots_slot;
DROP TRIGGER IF EXISTS slot_kept ON slots_slot;
"""


class Migration(migrations.Migration):
    dependencies = [("slots", "0001_initial"), ("pools", "0002_rules")]
    operations = [migrations.RunSQL(SQL, UNDO)]
