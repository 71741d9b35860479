-- drop_holder: frees every slot that names a claim without holds: the slot is idle if its provider has no work outside, else it drains.
-- All slots in one statement.
WITH s AS (
  UPDATE slots_slot SET state = CASE WHEN p.queue = '' THEN 'idle' ELSE 'draining' END,
    drain_until = CASE WHEN p.queue <> '' THEN now() + %(drain)s::interval END, due_at = CASE WHEN p.queue <> '' THEN now() END,
    claim_id = NULL, ordinal = NULL, last_claim_id = %(claim)s, changed_at = now()
  FROM pools_pool p
  WHERE p.id = slots_slot.pool_id AND slots_slot.claim_id = %(claim)s
    AND NOT EXISTS (SELECT FROM claims_claim WHERE id = %(claim)s AND state IN ('bound', 'reserved'))
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, slots_slot.generation, slots_slot.state, p.queue),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'repair', pool_id, member_id, id, %(claim)s, generation, 'held', state, %(actor)s, %(reason)s FROM s),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT queue, 'member:' || member_id, 'sync', pool_id, member_id, %(claim)s, generation FROM s WHERE state = 'draining')
SELECT id, state FROM s

-- record_holder: writes the holder of a slot to the event log again.
WITH s AS (SELECT id, pool_id, member_id, claim_id, generation, state FROM slots_slot WHERE id = %(slot)s FOR NO KEY UPDATE)
INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor, reason)
SELECT 'repair', pool_id, member_id, id, claim_id, generation, state, %(actor)s, %(reason)s FROM s RETURNING id

-- raise_generation: raises the sequence above all generations in use.
SELECT setval('generation', greatest((SELECT max(generation) FROM slots_slot), (SELECT max(generation) FROM claims_claim), 1))

-- make_claim_due: makes a blocked claim without a timer due, so that the finalizer queues it.
UPDATE claims_claim SET due_at = now() WHERE id = %(claim)s AND state = 'blocked' AND due_at IS NULL RETURNING id

-- make_plan_due: makes a plan that waits for its approval due.
UPDATE claims_claim SET due_at = now() WHERE id = %(claim)s AND state IN ('reserved', 'parked') RETURNING id

-- passed_over: I17 for queues that need only enough free slots of one pool. Slots that another claim may keep for itself do not count as
-- free.
SELECT sh.id, sh.size, p.name AS pool, c.id AS claim, f.n, extract(epoch FROM now() - greatest(c.changed_at, f.since))::float8 AS age
FROM claims_shape sh
CROSS JOIN LATERAL (
  SELECT id, rank, size, pool_id, changed_at FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT 1) c
JOIN pools_pool p ON p.id = c.pool_id AND p.state = 'active' AND p.paused_until IS NULL AND p.frozen_until IS NULL
CROSS JOIN LATERAL (
  {_ahead}) ahead
CROSS JOIN LATERAL (
  SELECT count(*) AS n, max(s.changed_at) AS since FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
  WHERE s.pool_id = p.id AND s.lane = ANY (sh.lanes) AND s.state = 'idle' AND s.is_open
    AND s.changed_at < now() - make_interval(secs => %(limit)s::float8) AND selects(coalesce(sh.terms->'selector', '{}'::jsonb), m.labels)
    AND (ahead.ids IS NULL OR NOT EXISTS (
      SELECT FROM claims_shape o WHERE o.id = ANY (ahead.ids) AND s.lane = ANY (o.lanes) AND selects(coalesce(o.terms->'selector', '{}'::jsonb), m.labels)))) f
WHERE NOT {_is_searched}
  AND f.n >= sh.size AND c.changed_at < now() - make_interval(secs => %(limit)s::float8)
ORDER BY sh.id LIMIT 1000

-- searched: I17 for all other queues: the allocator's search decides whether their slots are free.
SELECT sh.id, sh.pools, sh.kind, sh.size, sh.terms::text AS terms, c.id AS claim, extract(epoch FROM now() - c.changed_at)::float8 AS age
FROM claims_shape sh
CROSS JOIN LATERAL (
  SELECT id, rank, pool_id, changed_at FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT 1) c
WHERE {_is_searched} AND c.changed_at < now() - make_interval(secs => %(limit)s::float8)
ORDER BY sh.id LIMIT 1000

-- free_for: how long all of these slots have been unchanged.
SELECT extract(epoch FROM now() - max(s.changed_at))::float8 AS age,
  bool_or(coalesce(p.paused_until, p.frozen_until) IS NOT NULL) AS is_paused
FROM slots_slot s JOIN pools_pool p ON p.id = s.pool_id WHERE s.id = ANY (%(slots)s::bigint[])

-- _is_searched: whether a queue needs more than enough free slots of one pool, so that only the search can decide.
(cardinality(sh.pools) > 1 OR sh.terms ? 'parts' OR sh.kind = ANY (%(paired)s::varchar[]) AND NOT sh.is_simple
  OR coalesce((sh.terms->>'contiguous')::bool OR (sh.terms->>'on_one_member')::bool, false))

-- _ahead: the queues with a claim ahead of this one (c, of the queue sh) that could take any slot and may not be passed by it.
SELECT array_agg(o.id) AS ids FROM claims_shape o CROSS JOIN LATERAL (
    SELECT id, rank, size, passed, created_at FROM claims_claim WHERE shape_id = o.id AND state = 'waiting' ORDER BY rank, id LIMIT 1) head
  WHERE o.id <> sh.id AND NOT o.is_simple AND o.pools && sh.pools AND o.lanes && sh.lanes
    AND o.wait_reason->'passable' IS DISTINCT FROM 'true'::jsonb AND (head.rank, head.id) < (c.rank, c.id)
    AND NOT (c.size < head.size AND head.passed + c.size <= head.size
      AND head.created_at > now() - make_interval(secs => %(strict)s::float8))
