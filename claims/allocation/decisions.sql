-- Statements about tasks, their plans and what people decide about them. What changes claims and slots together stands in statements.sql.

-- start_run: before anything is executed: that this row is there says that it may have run. No row: it was started before, the claim is of
-- another generation by now, or this member does not hold it, or its pool is being deleted: whoever is ended there should not have begun.
-- The holder has answered for it, too. `is_approved`: the caller holds the claim's lock and has counted its approvals; no apply starts without.
WITH held AS MATERIALIZED (
  SELECT c.id, c.generation, c.step, s.id AS slot_id, s.pool_id, s.member_id, m.name AS member
  FROM claims_claim c JOIN slots_slot s ON s.claim_id = c.id AND s.ordinal = 0 JOIN pools_member m ON m.id = s.member_id
  WHERE c.id = %(claim)s AND c.generation = %(generation)s AND c.state = 'bound' AND c.step <> '' AND s.member_id = %(member)s
    AND (c.step <> 'apply' OR %(is_approved)s::bool)
    AND NOT EXISTS (SELECT FROM pools_pool WHERE id = s.pool_id AND state = 'deleting')
  FOR NO KEY UPDATE OF c),
r AS (
  INSERT INTO claims_run (claim_id, generation, step, member_id, member, place, boot)
  SELECT id, generation, step, member_id, member, %(place)s, %(boot)s FROM held
  ON CONFLICT (claim_id, generation) DO NOTHING RETURNING claim_id),
c AS (UPDATE claims_claim SET acknowledged_at = now() FROM r WHERE claims_claim.id = r.claim_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'start', pool_id, member_id, slot_id, id, held.generation, 'held', 'held', %(actor)s FROM held JOIN r ON r.claim_id = held.id)
SELECT claim_id FROM r

-- lock_run^: one generation of a claim on an agent; nothing comes in for it any more until this transaction is over.
SELECT claim_id, generation, step, member_id, member, boot, ended_at, outcome, facts::text AS facts FROM claims_run
WHERE claim_id = %(claim)s AND generation = %(generation)s FOR NO KEY UPDATE

-- run_of^: one generation of a claim on an agent.
SELECT claim_id, generation, step, member_id, member, boot, ended_at, outcome, facts::text AS facts FROM claims_run
WHERE claim_id = %(claim)s AND generation = %(generation)s

-- holder_of^: which member holds a claim in this generation, if any.
SELECT s.member_id, s.pool_id, s.lane, s.number FROM slots_slot s JOIN claims_claim c ON c.id = s.claim_id
WHERE s.claim_id = %(claim)s AND s.ordinal = 0 AND s.generation = %(generation)s AND c.state = 'bound'

-- end_run: how it ended, as the agent says or as we found. One that has ended stays as it is.
UPDATE claims_run SET ended_at = now(), outcome = %(outcome)s, code = %(code)s, reason = %(reason)s, exit_code = %(exit_code)s,
  facts = facts || %(facts)s::jsonb
WHERE claim_id = %(claim)s AND generation = %(generation)s AND ended_at IS NULL RETURNING claim_id

-- note_run: a word more about one that has ended.
UPDATE claims_run SET facts = facts || %(facts)s::jsonb WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING claim_id

-- add_ended_run: of one that failed before it could begin: for its page.
INSERT INTO claims_run (claim_id, generation, step, member_id, member, place, boot, started_at, ended_at, outcome, code, reason, exit_code, facts)
VALUES (%(claim)s, %(generation)s, %(step)s, %(member)s, %(name)s, %(place)s, '', now(), now(), %(outcome)s, %(code)s, %(reason)s, %(exit_code)s,
  %(facts)s::jsonb)
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING claim_id

-- open_runs: what a member was told to run and has not ended, of earlier starts of its agent.
SELECT r.claim_id, r.generation, r.step, r.boot FROM claims_run r
WHERE r.member_id = %(member)s AND r.ended_at IS NULL ORDER BY r.claim_id, r.generation

-- stale_plans: what was planned before is not to be applied.
UPDATE claims_plan SET is_stale = true WHERE claim_id = %(claim)s AND NOT is_stale RETURNING id

-- add_plan$: after stale_plans.
INSERT INTO claims_plan (claim_id, generation, digest, summary, facts, member_id, file, json_file, outline_file, size, mismatch)
VALUES (%(claim)s, %(generation)s, %(digest)s, %(summary)s::jsonb, %(facts)s::jsonb, %(member)s, %(file)s, %(json_file)s, %(outline_file)s, %(size)s,
  %(mismatch)s) RETURNING id

-- current_plan^: what people decide about.
SELECT id, digest, generation, member_id, summary::text AS summary, mismatch,
  json_file <> '' AND outline_file = '' AS is_unchecked FROM claims_plan WHERE claim_id = %(claim)s AND NOT is_stale

-- last_plan^: also one that is stale.
SELECT id, digest, member_id, is_stale FROM claims_plan WHERE claim_id = %(claim)s ORDER BY id DESC LIMIT 1

-- revisions: of all pools, to see whether one says something else by now.
SELECT id, revision FROM pools_pool WHERE state <> 'gone'

-- look_again: plans that wait in these pools are due.
UPDATE claims_claim SET due_at = now() WHERE id IN (
  SELECT id FROM claims_claim WHERE state IN ('reserved', 'parked') AND pool_id = ANY (%(pools)s::bigint[]) ORDER BY id FOR NO KEY UPDATE)
RETURNING id

-- is_frozen$: a pool in which nothing begins just now.
SELECT EXISTS (SELECT FROM pools_pool WHERE id = %(pool)s AND frozen_until IS NOT NULL)

-- is_deleting$: a pool in which nothing begins any more.
SELECT EXISTS (SELECT FROM pools_pool WHERE id = %(pool)s AND state = 'deleting')

-- add_approval: one decision of each user. No row: the user has decided before.
INSERT INTO claims_approval (plan_id, user_id, by_user, is_yes, comment, via) VALUES (%(plan)s, %(user)s, %(by)s, %(is_yes)s, %(comment)s, %(via)s)
ON CONFLICT (plan_id, user_id) DO NOTHING RETURNING id

-- say_no: it takes back a yes of the same person.
INSERT INTO claims_approval (plan_id, user_id, by_user, is_yes, comment, via) VALUES (%(plan)s, %(user)s, %(by)s, false, %(comment)s, %(via)s)
ON CONFLICT (plan_id, user_id) DO UPDATE SET is_yes = false, comment = EXCLUDED.comment, via = EXCLUDED.via, at = now() RETURNING id

-- approvals_of: what was said, in its order.
SELECT user_id, by_user, is_yes, comment, via, at FROM claims_approval WHERE plan_id = %(plan)s ORDER BY at, id

-- extend^: in time only.
-- @not_null expires_at
UPDATE claims_claim SET expires_at = expires_at + make_interval(secs => %(seconds)s::float8), notified_at = NULL, due_at = now(), changed_at = now()
WHERE id = %(claim)s AND state IN ('reserved', 'parked') AND expires_at > now() RETURNING id, pool_id, generation, state, expires_at

-- is_too_far$: whether it would wait for longer than anybody may ask for.
SELECT expires_at > now() + make_interval(secs => %(longest)s::float8) FROM claims_claim WHERE id = %(claim)s

-- notify^: that its deadline is near, once.
-- @not_null expires_at
UPDATE claims_claim SET notified_at = now(), due_at = now()
WHERE id = %(claim)s AND state IN ('reserved', 'parked') AND notified_at IS NULL AND expires_at > now()
RETURNING id, pool_id, generation, state, expires_at, requested_by

-- stop_seeking: its pool keeps no slot for it any longer.
UPDATE claims_claim SET is_seeking = false, due_at = now() WHERE id = %(claim)s AND state = 'parked' AND is_seeking RETURNING id

-- start_seeking: its pool keeps a slot for it, and it has none.
UPDATE claims_claim SET is_seeking = true, due_at = now() WHERE id = %(claim)s AND state = 'parked' AND NOT is_seeking RETURNING id

-- seekers: parked claims that are to have a slot again, in the order of their turns, and where they were before: of each kind no more than
-- there are slots for them now, so that those of a full pool, however many, hide nobody.
WITH kinds AS MATERIALIZED (SELECT pool_id, shape_id FROM claims_claim WHERE is_seeking AND size = 1 GROUP BY 1, 2)
SELECT c.id, c.pool_id, c.generation, c.rank, sh.lanes, sh.pools,
  (SELECT member_id FROM claims_plan WHERE claim_id = c.id AND NOT is_stale) AS member_id
FROM kinds k JOIN claims_shape sh ON sh.id = k.shape_id
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM slots_slot WHERE pool_id = k.pool_id AND lane = ANY (sh.lanes) AND state = 'idle' AND is_open LIMIT {n}) idle) free
CROSS JOIN LATERAL (
  SELECT id, pool_id, generation, rank FROM claims_claim WHERE is_seeking AND size = 1 AND pool_id = k.pool_id AND shape_id = k.shape_id
  ORDER BY rank, id LIMIT free.n) c
ORDER BY c.rank, c.id

-- seeking_pools: pools in which claims are parked that are to have a slot again.
-- @not_null pool_id
SELECT DISTINCT pool_id FROM claims_claim WHERE is_seeking AND size = 1 AND pool_id IS NOT NULL

-- applies_in_line: approved claims that wait for a slot, and where their plan was made.
SELECT c.id, c.pool_id, sh.lanes, p.queue, pl.member_id
FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id JOIN pools_pool p ON p.id = c.pool_id JOIN claims_plan pl ON pl.id = c.approved_plan_id
WHERE c.state = 'waiting' AND c.step = 'apply' AND c.size = 1 AND EXISTS (
    SELECT FROM slots_slot WHERE member_id = pl.member_id AND lane = ANY (sh.lanes) AND pool_id = c.pool_id AND state = 'idle' AND is_open OFFSET 0)
ORDER BY c.rank, c.id LIMIT {n}

-- approved_wait$: whether somebody who was approved stands in line for one of these lanes: he goes before those who only keep a place.
SELECT EXISTS (
  SELECT FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id
  WHERE c.state = 'waiting' AND c.step = 'apply' AND c.rank = 0 AND c.pool_id = %(pool)s AND sh.lanes && %(lanes)s::varchar[])

-- is_member_there^: whether what waits on this member can be worked on there soon.
SELECT m.state = 'ready' AND m.lost_at IS NULL AS is_ready, m.is_cordoned OR m.is_leaving AS is_closing, m.name FROM pools_member m
WHERE m.id = %(member)s

-- slot_of^: where a claim is.
SELECT s.id, s.pool_id, s.member_id, s.lane, s.number, m.name AS member FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
WHERE s.claim_id = %(claim)s AND s.ordinal = 0

-- slots_on_member: which of these are on that member.
SELECT id FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND member_id = %(member)s

-- is_destroying$: whether a plan destroys or replaces something.
SELECT coalesce((summary->>'destroy')::bigint, 0) + coalesce((summary->>'replace')::bigint, 0) > 0 FROM claims_plan WHERE id = %(plan)s

-- settle_run: what a person says became of an apply that was lost: of its last run.
UPDATE claims_run SET facts = facts || %(facts)s::jsonb
WHERE claim_id = %(claim)s AND generation = (SELECT max(generation) FROM claims_run WHERE claim_id = %(claim)s AND step = 'apply')
RETURNING claim_id

-- runs_of_workspace: what ran in it, the newest first, before a claim.
SELECT r.claim_id, r.generation, r.step, r.member, r.place, r.started_at, r.ended_at, r.outcome, r.code, r.reason, c.requested_by, c.state,
  c.outcome AS claim_outcome, c.pool_id, (r.facts->'settled')::text AS settled
FROM (SELECT id, requested_by, state, outcome, pool_id FROM claims_claim
      WHERE workspace_id = %(workspace)s AND id < coalesce(%(before)s::bigint, 9223372036854775807)
      ORDER BY id DESC LIMIT {n}) c
JOIN LATERAL (SELECT * FROM claims_run WHERE claim_id = c.id) r ON true ORDER BY c.id DESC, r.generation DESC

-- claims_of_workspace: the claims of that page.
SELECT id FROM claims_claim
WHERE workspace_id = %(workspace)s AND id < coalesce(%(before)s::bigint, 9223372036854775807)
ORDER BY id DESC LIMIT {n}
