"""What may never happen to a claim, and the agreement of both sides after every statement."""

from django.db import migrations

SQL = """
CREATE TRIGGER claim_move BEFORE UPDATE ON claims_claim FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ('{blocked>ended,blocked>waiting,bound>blocked,bound>ended,bound>parked,bound>reserved,bound>waiting,parked>ended,parked>reserved,parked>waiting,reserved>bound,reserved>ended,reserved>parked,waiting>blocked,waiting>bound,waiting>ended}'))
  EXECUTE FUNCTION refuse('no such move');
CREATE TRIGGER claim_set_move BEFORE UPDATE ON claims_claimset FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ('{active>deleting}'))
  EXECUTE FUNCTION refuse('no such move');
CREATE TRIGGER claim_generation_rises BEFORE UPDATE ON claims_claim FOR EACH ROW
  WHEN (NEW.generation < OLD.generation
        OR (NEW.generation = OLD.generation AND NEW.state <> OLD.state AND NEW.state IN ('bound', 'reserved')))
  EXECUTE FUNCTION refuse('a hand-over draws a new generation');
CREATE TRIGGER claim_kept BEFORE DELETE ON claims_claim FOR EACH ROW
  WHEN (OLD.state IN ('bound', 'reserved')) EXECUTE FUNCTION refuse('holds slots');

-- A claim that holds has exactly `size` slots, all of its generation, numbered from 0, held while bound and reserved while reserved;
-- any other claim has none. So a hand-over changes both sides in one statement. The functions read the transition tables directly
-- (through an array variable they would be planned at every call) and never scan: a plan made while the tables were small stays in
-- the session.
CREATE FUNCTION claims_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE wrong text;
BEGIN
  SELECT format('claim %s is %s and has %s of %s slots', t.id, t.state, s.n, t.size) INTO wrong
  FROM new_rows t,
  LATERAL (SELECT count(*) AS n, max(ordinal) AS top, min(generation) AS low, max(generation) AS high, min(state) AS one, max(state) AS other
           FROM slots_slot WHERE claim_id = t.id) s
  WHERE CASE WHEN t.state IN ('bound', 'reserved')
        THEN s.n <> t.size OR s.top <> t.size - 1 OR s.low <> t.generation OR s.high <> t.generation
             OR s.one <> s.other OR s.one <> CASE t.state WHEN 'bound' THEN 'held' ELSE 'reserved' END
        ELSE s.n > 0 END
  LIMIT 1;
  IF wrong IS NOT NULL THEN RAISE EXCEPTION '%', wrong USING ERRCODE = 'BR002', CONSTRAINT = TG_NAME; END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION slots_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE wrong text;
BEGIN
  SELECT format('claim %s is %s and has %s of %s slots', t.id, coalesce(c.state, 'missing'), s.n, c.size) INTO wrong
  FROM (SELECT claim_id AS id FROM new_rows WHERE claim_id IS NOT NULL UNION ALL SELECT claim_id FROM old_rows WHERE claim_id IS NOT NULL) t
  LEFT JOIN LATERAL (SELECT state, size, generation FROM claims_claim WHERE id = t.id LIMIT 1) c ON true,
  LATERAL (SELECT count(*) AS n, max(ordinal) AS top, min(generation) AS low, max(generation) AS high, min(state) AS one, max(state) AS other
           FROM slots_slot WHERE claim_id = t.id) s
  WHERE CASE WHEN c.state IN ('bound', 'reserved')
        THEN s.n <> c.size OR s.top <> c.size - 1 OR s.low <> c.generation OR s.high <> c.generation
             OR s.one <> s.other OR s.one <> CASE c.state WHEN 'bound' THEN 'held' ELSE 'reserved' END
        ELSE s.n > 0 END
  LIMIT 1;
  IF wrong IS NOT NULL THEN RAISE EXCEPTION '%', wrong USING ERRCODE = 'BR002', CONSTRAINT = TG_NAME; END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER slot_agrees AFTER UPDATE ON slots_slot REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION slots_agree();
CREATE TRIGGER claim_agrees AFTER UPDATE ON claims_claim REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION claims_agree();
CREATE TRIGGER claim_agrees_new AFTER INSERT ON claims_claim REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION claims_agree();
"""
UNDO = """
DROP TRIGGER IF EXISTS slot_agrees ON slots_slot;
DROP TRIGGER IF EXISTS claim_agrees ON claims_claim;
DROP TRIGGER IF EXISTS claim_agrees_new ON claims_claim;
DROP FUNCTION IF EXISTS slots_agree;
DROP FUNCTION IF EXISTS claims_agree;
DROP TRIGGER IF EXISTS claim_generation_rises ON claims_claim;
DROP TRIGGER IF EXISTS claim_kept ON claims_claim;
DROP TRIGGER IF EXISTS claim_move ON claims_claim;
DROP TRIGGER IF EXISTS claim_set_move ON claims_claimset;
"""


class Migration(migrations.Migration):
    dependencies = [("claims", "0002_initial"), ("slots", "0002_rules")]
    operations = [migrations.RunSQL(SQL, UNDO)]
