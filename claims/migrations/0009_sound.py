"""What is always true of a claim by itself is one CHECK, and both sides agree by fewer aggregates: less for a statement to begin with."""

from django.db import migrations, models
from django.db.models import F

# A copy of what claims.constraints declares; tests/database/test_transitions.py holds it against the declaration.
SQL = """
CREATE OR REPLACE FUNCTION is_claim_sound(state varchar, outcome varchar, size integer, generation bigint, named_generation bigint, step varchar, approved_plan_id bigint, expires_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF (state = ANY ('{blocked,bound,ended,parked,reserved,waiting}'))
    AND (size > 0)
    AND ((state = 'ended') = (outcome <> ''))
    AND (expires_at IS NOT NULL OR state <> 'reserved' AND state <> 'parked')
    AND (named_generation = generation OR state = ANY ('{bound,reserved}'))
    AND (step <> 'apply' OR approved_plan_id IS NOT NULL) THEN
    RETURN true;
  END IF;
  IF NOT (state = ANY ('{blocked,bound,ended,parked,reserved,waiting}')) THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_state_known"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_state_known';
  END IF;
  IF NOT (size > 0) THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_size"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_size';
  END IF;
  IF NOT ((state = 'ended') = (outcome <> '')) THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_outcome"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_outcome';
  END IF;
  IF NOT (expires_at IS NOT NULL OR state <> 'reserved' AND state <> 'parked') THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_deadline"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_deadline';
  END IF;
  IF NOT (named_generation = generation OR state = ANY ('{bound,reserved}')) THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_named"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_named';
  END IF;
  IF NOT (step <> 'apply' OR approved_plan_id IS NOT NULL) THEN
    RAISE EXCEPTION 'new row for relation "claims_claim" violates check constraint "claim_apply_approved"'
      USING ERRCODE = 'check_violation', TABLE = 'claims_claim', CONSTRAINT = 'claim_apply_approved';
  END IF;
  RETURN true;
END $$;
"""
UNDO = "DROP FUNCTION IF EXISTS is_claim_sound;"

# How many slots there are, their highest number, and how many of them are of this generation and held as the claim is.
AGREE = """
CREATE OR REPLACE FUNCTION claims_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE wrong text;
BEGIN
  SELECT format('claim %s is %s and has %s of %s slots', t.id, t.state, s.n, t.size) INTO wrong
  FROM new_rows t,
  LATERAL (SELECT count(*) AS n, max(ordinal) AS top, count(*) FILTER (WHERE generation = t.generation AND state = CASE t.state WHEN 'bound' THEN 'held' ELSE 'reserved' END) AS good
           FROM slots_slot WHERE claim_id = t.id) s
  WHERE CASE WHEN t.state IN ('bound', 'reserved')
        THEN s.n <> t.size OR s.top <> t.size - 1 OR s.good <> t.size
        ELSE s.n > 0 END
  LIMIT 1;
  IF wrong IS NOT NULL THEN RAISE EXCEPTION '%', wrong USING ERRCODE = 'BR002', CONSTRAINT = TG_NAME; END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION slots_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE wrong text;
BEGIN
  SELECT format('claim %s is %s and has %s of %s slots', t.id, coalesce(c.state, 'missing'), s.n, c.size) INTO wrong
  FROM (SELECT claim_id AS id FROM new_rows WHERE claim_id IS NOT NULL UNION ALL SELECT claim_id FROM old_rows WHERE claim_id IS NOT NULL) t
  LEFT JOIN LATERAL (SELECT state, size, generation FROM claims_claim WHERE id = t.id LIMIT 1) c ON true,
  LATERAL (SELECT count(*) AS n, max(ordinal) AS top, count(*) FILTER (WHERE generation = c.generation AND state = CASE c.state WHEN 'bound' THEN 'held' ELSE 'reserved' END) AS good
           FROM slots_slot WHERE claim_id = t.id) s
  WHERE CASE WHEN c.state IN ('bound', 'reserved')
        THEN s.n <> c.size OR s.top <> c.size - 1 OR s.good <> c.size
        ELSE s.n > 0 END
  LIMIT 1;
  IF wrong IS NOT NULL THEN RAISE EXCEPTION '%', wrong USING ERRCODE = 'BR002', CONSTRAINT = TG_NAME; END IF;
  RETURN NULL;
END $$;
"""
AGREED = """
CREATE OR REPLACE FUNCTION claims_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
CREATE OR REPLACE FUNCTION slots_agree() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
"""
# A claim is written three times at least, and no update is HOT: pages with room split and are cleaned less often.
ROOMY = """
ALTER INDEX claims_claim_pkey SET (fillfactor = 50);
ALTER INDEX claim_of_pool SET (fillfactor = 50);
"""
TIGHT = """
ALTER INDEX claims_claim_pkey RESET (fillfactor);
ALTER INDEX claim_of_pool RESET (fillfactor);
"""
COLUMNS = ("state", "outcome", "size", "generation", "named_generation", "step", "approved_plan", "expires_at")
CHECK = models.CheckConstraint(
    name="claim_sound",
    condition=models.Func(*(F(column) for column in COLUMNS), function="is_claim_sound", output_field=models.BooleanField()),
)
INSTEAD_OF = ("claim_state_known", "claim_size", "claim_outcome", "claim_deadline", "claim_named", "claim_apply_approved")


class Migration(migrations.Migration):
    dependencies = [("claims", "0008_history"), ("slots", "0003_sound")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.AddConstraint("claim", CHECK),
        *(migrations.RemoveConstraint("claim", name) for name in INSTEAD_OF),
        migrations.RunSQL(AGREE, AGREED),
        migrations.RunSQL(ROOMY, TIGHT),
    ]
