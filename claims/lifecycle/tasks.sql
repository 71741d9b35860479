-- Statements about the runs, plans and approvals of tasks. Statements that change claims and slots together are in claims/statements.sql.

-- start_run: written before the agent executes anything: this row says that the task may have run. No row: the run has started before,
-- the claim has another generation, this member does not hold the claim, or its pool is in deletion. The start also acknowledges the
-- claim. `is_approved`: the caller has locked the claim and counted its approvals; no apply starts without them.
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

-- lock_run^: locks the run of a claim's generation: its agent can add nothing until this transaction ends.
SELECT claim_id, generation, step, member_id, member, boot, ended_at, outcome, facts::text AS facts FROM claims_run
WHERE claim_id = %(claim)s AND generation = %(generation)s FOR NO KEY UPDATE

-- run_of^: the run of a claim's generation.
SELECT claim_id, generation, step, member_id, member, boot, ended_at, outcome, facts::text AS facts FROM claims_run
WHERE claim_id = %(claim)s AND generation = %(generation)s

-- holder_of^: the slot that a claim holds in this generation, if any.
SELECT s.member_id, s.pool_id, s.lane, s.number FROM slots_slot s JOIN claims_claim c ON c.id = s.claim_id
WHERE s.claim_id = %(claim)s AND s.ordinal = 0 AND s.generation = %(generation)s AND c.state = 'bound'

-- end_run: records the result of a run, from the agent or from Berth. A run that has ended does not change.
UPDATE claims_run SET ended_at = now(), outcome = %(outcome)s, code = %(code)s, reason = %(reason)s, exit_code = %(exit_code)s,
  facts = facts || %(facts)s::jsonb
WHERE claim_id = %(claim)s AND generation = %(generation)s AND ended_at IS NULL RETURNING claim_id

-- add_run_facts: adds facts to a run that has ended.
UPDATE claims_run SET facts = facts || %(facts)s::jsonb WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING claim_id

-- add_ended_run: a run that failed before it could begin, for the page of the task.
INSERT INTO claims_run (claim_id, generation, step, member_id, member, place, boot, started_at, ended_at, outcome, code, reason, exit_code, facts)
VALUES (%(claim)s, %(generation)s, %(step)s, %(member)s, %(name)s, %(place)s, '', now(), now(), %(outcome)s, %(code)s, %(reason)s, %(exit_code)s,
  %(facts)s::jsonb)
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING claim_id

-- open_runs: the runs of a member that have not ended.
SELECT r.claim_id, r.generation, r.step, r.boot FROM claims_run r
WHERE r.member_id = %(member)s AND r.ended_at IS NULL ORDER BY r.claim_id, r.generation

-- stale_plans: marks the earlier plans of a claim as stale: they must not be applied.
UPDATE claims_plan SET is_stale = true WHERE claim_id = %(claim)s AND NOT is_stale RETURNING id

-- add_plan$: after stale_plans.
INSERT INTO claims_plan (claim_id, generation, digest, summary, facts, member_id, file, json_file, outline_file, size, mismatch)
VALUES (%(claim)s, %(generation)s, %(digest)s, %(summary)s::jsonb, %(facts)s::jsonb, %(member)s, %(file)s, %(json_file)s, %(outline_file)s, %(size)s,
  %(mismatch)s) RETURNING id

-- current_plan^: the plan that waits for its approval.
SELECT id, digest, generation, member_id, summary::text AS summary, mismatch,
  json_file <> '' AND outline_file = '' AS is_unchecked FROM claims_plan WHERE claim_id = %(claim)s AND NOT is_stale

-- last_plan^: the last plan of a claim, also a stale one.
SELECT id, digest, member_id, is_stale FROM claims_plan WHERE claim_id = %(claim)s ORDER BY id DESC LIMIT 1

-- revisions: the revisions of all pools, to find changed configurations.
SELECT id, revision FROM pools_pool WHERE state <> 'gone'

-- make_plans_due: makes the waiting plans of these pools due for a check.
UPDATE claims_claim SET due_at = now() WHERE id IN (
  SELECT id FROM claims_claim WHERE state IN ('reserved', 'parked') AND pool_id = ANY (%(pools)s::bigint[]) ORDER BY id FOR NO KEY UPDATE)
RETURNING id

-- is_frozen$: whether a freeze of the pool is open, so that no apply begins.
SELECT EXISTS (SELECT FROM pools_pool WHERE id = %(pool)s AND frozen_until IS NOT NULL)

-- is_deleting$: whether the pool is in deletion, so that no task begins.
SELECT EXISTS (SELECT FROM pools_pool WHERE id = %(pool)s AND state = 'deleting')

-- add_approval: the decision of a user. No row: the user has decided before.
INSERT INTO claims_approval (plan_id, user_id, by_user, is_yes, comment, via) VALUES (%(plan)s, %(user)s, %(by)s, %(is_yes)s, %(comment)s, %(via)s)
ON CONFLICT (plan_id, user_id) DO NOTHING RETURNING id

-- add_rejection: a rejection. It replaces an approval of the same user.
INSERT INTO claims_approval (plan_id, user_id, by_user, is_yes, comment, via) VALUES (%(plan)s, %(user)s, %(by)s, false, %(comment)s, %(via)s)
ON CONFLICT (plan_id, user_id) DO UPDATE SET is_yes = false, comment = EXCLUDED.comment, via = EXCLUDED.via, at = now() RETURNING id

-- approvals_of: the approvals and rejections of a plan in their order.
SELECT user_id, by_user, is_yes, comment, via, at FROM claims_approval WHERE plan_id = %(plan)s ORDER BY at, id

-- extend^: moves the deadline of a plan that waits, before it has passed.
-- @not_null expires_at
UPDATE claims_claim SET expires_at = expires_at + make_interval(secs => %(seconds)s::float8), notified_at = NULL, due_at = now(), changed_at = now()
WHERE id = %(claim)s AND state IN ('reserved', 'parked') AND expires_at > now() RETURNING id, pool_id, generation, state, expires_at

-- is_too_far$: whether the deadline is later than allowed.
SELECT expires_at > now() + make_interval(secs => %(longest)s::float8) FROM claims_claim WHERE id = %(claim)s

-- notify^: records once that the deadline is near.
-- @not_null expires_at
UPDATE claims_claim SET notified_at = now(), due_at = now()
WHERE id = %(claim)s AND state IN ('reserved', 'parked') AND notified_at IS NULL AND expires_at > now()
RETURNING id, pool_id, generation, state, expires_at, requested_by

-- stop_seeking: the pool reserves no slot for the claim any longer.
UPDATE claims_claim SET is_seeking = false, due_at = now() WHERE id = %(claim)s AND state = 'parked' AND is_seeking RETURNING id

-- start_seeking: the pool reserves a slot for the claim, and the claim has none.
UPDATE claims_claim SET is_seeking = true, due_at = now() WHERE id = %(claim)s AND state = 'parked' AND NOT is_seeking RETURNING id

-- seekers: parked claims that get a slot again, in the order of their turns, with the member of their plan. Of each queue at most as many
-- as it has free slots now, so that the claims of a full pool never hide those of another.
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

-- seeking_pools: pools with parked claims that get a slot again.
-- @not_null pool_id
SELECT DISTINCT pool_id FROM claims_claim WHERE is_seeking AND size = 1 AND pool_id IS NOT NULL

-- queued_applies: approved claims that wait for a slot while the member of their plan has a free one.
SELECT c.id, c.pool_id, sh.lanes, p.queue, pl.member_id
FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id JOIN pools_pool p ON p.id = c.pool_id JOIN claims_plan pl ON pl.id = c.approved_plan_id
WHERE c.state = 'waiting' AND c.step = 'apply' AND c.size = 1 AND EXISTS (
    SELECT FROM slots_slot WHERE member_id = pl.member_id AND lane = ANY (sh.lanes) AND pool_id = c.pool_id AND state = 'idle' AND is_open OFFSET 0)
ORDER BY c.rank, c.id LIMIT {n}

-- approved_wait$: whether an approved claim waits for one of these lanes. It goes before claims that only reserve a slot.
SELECT EXISTS (
  SELECT FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id
  WHERE c.state = 'waiting' AND c.step = 'apply' AND c.rank = 0 AND c.pool_id = %(pool)s AND sh.lanes && %(lanes)s::varchar[])

-- member_state^: whether claims can soon work on this member.
SELECT m.state = 'ready' AND m.lost_at IS NULL AS is_ready, m.is_cordoned OR m.is_leaving AS is_closing, m.name FROM pools_member m
WHERE m.id = %(member)s

-- slot_of^: the slot of a claim.
SELECT s.id, s.pool_id, s.member_id, s.lane, s.number, m.name AS member FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
WHERE s.claim_id = %(claim)s AND s.ordinal = 0

-- slots_on_member: those of these slots that are on the member.
SELECT id FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND member_id = %(member)s

-- is_destroying$: whether a plan destroys or replaces a resource.
SELECT coalesce((summary->>'destroy')::bigint, 0) + coalesce((summary->>'replace')::bigint, 0) > 0 FROM claims_plan WHERE id = %(plan)s

-- record_outcome: records on its last run what a user says about a lost apply.
UPDATE claims_run SET facts = facts || %(facts)s::jsonb
WHERE claim_id = %(claim)s AND generation = (SELECT max(generation) FROM claims_run WHERE claim_id = %(claim)s AND step = 'apply')
RETURNING claim_id

-- runs_of_workspace: runs of a workspace before a claim, the newest first.
SELECT r.claim_id AS claim, r.generation, r.step, r.member, r.place, r.started_at, r.ended_at, r.outcome, r.code, r.reason, c.requested_by,
  c.pool_id, (r.facts->'settled')::text AS settled
FROM (SELECT id, requested_by, pool_id FROM claims_claim
      WHERE workspace_id = %(workspace)s AND id < coalesce(%(before)s::bigint, 9223372036854775807)
      ORDER BY id DESC LIMIT {n}) c
JOIN LATERAL (SELECT * FROM claims_run WHERE claim_id = c.id) r ON true ORDER BY c.id DESC, r.generation DESC

-- claims_of_workspace: the claims of that page.
SELECT id FROM claims_claim
WHERE workspace_id = %(workspace)s AND id < coalesce(%(before)s::bigint, 9223372036854775807)
ORDER BY id DESC LIMIT {n}
