-- The statements of the scaler: for many pools at once, aggregated, never claim by claim.

-- _pool_columns: the facts of a pool's row that a decision needs. Ages are by clock_timestamp(), not by the start of the transaction.
p.id, p.name, p.provider, p.queue, p.spec::text AS spec, p.min_members, p.max_members,
  p.scale_requested_at IS NOT NULL AS is_requested, coalesce(p.scaled_up_at >= p.scale_requested_at, false) AS grown_since_request,
  extract(epoch FROM clock_timestamp() - p.scaled_up_at)::float8 AS since_up,
  extract(epoch FROM clock_timestamp() - p.scaled_down_at)::float8 AS since_down,
  extract(epoch FROM clock_timestamp() - p.observed_at)::float8 AS seen,
  CASE WHEN p.pin_until IS NULL OR p.pin_until > now() THEN p.pin_count END AS pin_count, p.pin_reason, coalesce(p.pin_until <= now(), false) AS is_pin_over,
  CASE WHEN p.paused_until > now() THEN coalesce(nullif(p.pause_reason, ''), 'the pool is paused') END AS paused,
  CASE WHEN p.scaling_paused_until > now() THEN coalesce(nullif(p.scaling_pause_reason, ''), 'no reason was given') END AS scaling_paused,
  coalesce(p.scaling_paused_until <= now(), false) AS is_pause_over,
  coalesce(p.unfrozen_until > now(), false) AS is_unfrozen, p.frozen_until, p.surge_id,
  p.roll_ordered <> '' AND p.roll_ordered = p.member_digest AS is_roll_ordered,
  CASE WHEN p.roll_paused_until > now() THEN coalesce(nullif(p.roll_pause_reason, ''), 'no reason was given') END AS roll_paused,
  coalesce(p.roll_paused_until <= now(), false) AS is_roll_pause_over,
  CASE WHEN p.roll_stopped_at IS NOT NULL THEN p.roll_stop_reason END AS roll_stopped, clock_timestamp() AS moment

-- scaled_pools: active pools with scaling, with outdated members, or still frozen after their scaling was removed.
SELECT id, scale_requested_at IS NOT NULL AS is_requested FROM pools_pool p
WHERE state = 'active' AND (spec->'scaling' IS NOT NULL OR frozen_until IS NOT NULL OR (member_digest <> '' AND EXISTS (
  SELECT FROM pools_member m WHERE m.pool_id = p.id AND m.state IN ('creating', 'ready', 'offline') AND m.spec_digest NOT IN ('', p.member_digest))))
ORDER BY id

-- lock_scaled: locks pools, the first in the order of locks. A pool that another scaler or a person has locked follows in the next cycle.
SELECT {_pool_columns} FROM pools_pool p
WHERE p.id = ANY (%(pools)s::bigint[]) AND p.state = 'active' ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED

-- wait_for_scaled: the same for one pool that a person names, but waits for its lock.
SELECT {_pool_columns} FROM pools_pool p WHERE p.id = ANY (%(pools)s::bigint[]) AND p.state = 'active' FOR NO KEY UPDATE

-- read_scaled: the same without a lock.
SELECT {_pool_columns} FROM pools_pool p WHERE p.id = ANY (%(pools)s::bigint[]) AND p.state = 'active' ORDER BY p.id

-- scaled_members: members with counts of their slots. After the pool, the columns are in the order of pools.scaling.ScaledMember.
-- OFFSET 0 makes the planner read member by member through slot_place, not all slots.
SELECT m.pool_id, m.id, m.name, m.state, s.slots, s.running, s.reserved, s.draining, m.deletion_cost, extract(epoch FROM m.created_at)::float8 AS created,
  extract(epoch FROM now() - greatest(s.changed_at, m.state_at))::float8 AS quiet_for, m.is_leaving, m.is_cordoned,
  m.lost_at IS NOT NULL OR m.gave_up_at IS NOT NULL AS is_lost, m.is_owned,
  p.member_digest <> '' AND m.spec_digest NOT IN ('', p.member_digest) AS is_outdated,
  extract(epoch FROM clock_timestamp() - m.state_at)::float8 AS state_for, m.outside,
  (SELECT count(*) FROM slots_unsavedstate WHERE member_id = m.id)::int AS unsaved
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id CROSS JOIN LATERAL (
  SELECT (count(*) FILTER (WHERE state <> 'retired'))::int AS slots, (count(*) FILTER (WHERE state = 'held'))::int AS running,
    (count(*) FILTER (WHERE state = 'reserved'))::int AS reserved, (count(*) FILTER (WHERE state = 'draining'))::int AS draining,
    max(changed_at) AS changed_at
  FROM (SELECT state, changed_at FROM slots_slot WHERE member_id = m.id OFFSET 0) x) s
WHERE m.pool_id = ANY (%(pools)s::bigint[]) AND m.state IN ('creating', 'ready', 'offline', 'deleting')

-- free_lanes: free slots that new claims can get, by lane.
-- @not_null pool_id
SELECT pool_id, lane, count(*)::int AS n FROM slots_slot
WHERE pool_id = ANY (%(pools)s::bigint[]) AND state = 'idle' AND is_open GROUP BY 1, 2

-- wanted_lines: every queue with waiting claims. A loose index scan: the cost depends on the number of queues, not of claims.
WITH RECURSIVE l AS (
  (SELECT shape_id FROM claims_claim WHERE state = 'waiting' ORDER BY shape_id LIMIT 1)
  UNION ALL
  SELECT (SELECT shape_id FROM claims_claim WHERE state = 'waiting' AND shape_id > l.shape_id ORDER BY shape_id LIMIT 1)
  FROM l WHERE l.shape_id IS NOT NULL)
SELECT sh.id AS shape, sh.pools, sh.kind, sh.size, sh.is_simple, coalesce(nullif(sh.terms->'selector', '{}')::text, '') AS selector,
  coalesce(sh.wait_reason->>'code', '') AS code, coalesce((sh.terms->'parts')::text, '') AS parts
FROM l JOIN claims_shape sh ON sh.id = l.shape_id

-- free_labelled: pools and lanes with a free slot on a member with these labels.
SELECT DISTINCT s.pool_id, t.labels::text AS labels, s.lane FROM unnest(%(labels)s::jsonb[]) AS t(labels)
JOIN pools_member m ON m.pool_id = ANY (%(pools)s::bigint[]) AND m.state = 'ready' AND selects(t.labels, m.labels)
CROSS JOIN LATERAL (SELECT pool_id, lane, state, is_open FROM slots_slot WHERE member_id = m.id OFFSET 0) s
WHERE s.state = 'idle' AND s.is_open

-- count_lines: waiting claims in these queues, counted up to n each.
-- @not_null waited
SELECT sh.id AS shape, w.n, w.waited FROM unnest(%(shapes)s::bigint[]) AS sh(id) CROSS JOIN LATERAL (
  SELECT count(*)::int AS n, extract(epoch FROM now() - min(created_at))::float8 AS waited FROM (
    SELECT created_at FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT {n}) x) w WHERE w.n > 0

-- count_urgent: approved applies in these queues.
SELECT shape_id AS shape, count(*)::int AS n FROM claims_claim
WHERE state = 'waiting' AND step = 'apply' AND rank = 0 AND shape_id = ANY (%(shapes)s::bigint[]) GROUP BY 1

-- count_seeking: plans that wait for an approval and get a slot again, by pool.
-- @not_null pool_id
SELECT c.pool_id, sh.kind, count(*)::int AS n FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id
WHERE c.is_seeking AND c.pool_id = ANY (%(pools)s::bigint[]) GROUP BY 1, 2

-- count_blocked: claims that wait for a workspace lock or a predecessor; they are no demand for members.
SELECT pool_id, count(*)::int AS n FROM claims_claim WHERE state = 'blocked' GROUP BY 1

-- last_decisions: the newest decision of each pool.
SELECT p.id AS pool, d.id, d.key FROM unnest(%(pools)s::bigint[]) AS p(id) CROSS JOIN LATERAL (
  SELECT id, inputs->>'key' AS key FROM pools_decision WHERE pool_id = p.id ORDER BY last_at DESC LIMIT 1) d

-- latest_decisions: the newest decision of each pool for lists, without its checks, which are most of its size.
SELECT p.id AS pool, d.id, d.at, d.last_at, d.seen_again, (d.inputs - 'checks')::text AS inputs, d.delta, d.reason FROM unnest(%(pools)s::bigint[]) AS p(id) CROSS JOIN LATERAL (
  SELECT id, at, last_at, seen_again, inputs, delta, reason FROM pools_decision WHERE pool_id = p.id ORDER BY last_at DESC LIMIT 1) d

-- count_changes: members created and removed in the last seconds, by pool.
SELECT p.id AS pool, coalesce(sum(d.delta) FILTER (WHERE d.delta > 0), 0)::int AS grown,
  coalesce(-sum(d.delta) FILTER (WHERE d.delta < 0), 0)::int AS shrunk
FROM unnest(%(pools)s::bigint[]) AS p(id)
JOIN LATERAL (SELECT delta FROM pools_decision WHERE pool_id = p.id AND last_at > now() - make_interval(secs => %(seconds)s) AND delta <> 0) d ON true
GROUP BY 1

-- count_outdated: members made from an older configuration, by pool.
SELECT m.pool_id AS pool, count(*)::int AS n FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.pool_id = ANY (%(pools)s::bigint[]) AND m.state IN ('creating', 'ready', 'offline') AND p.member_digest <> ''
  AND m.spec_digest NOT IN ('', p.member_digest) GROUP BY 1

-- see_again: the same decision was made again: count it and keep the newest inputs.
UPDATE pools_decision SET last_at = now(), seen_again = seen_again + 1, inputs = t.inputs, reason = t.reason, chosen = t.chosen, spared = t.spared
FROM unnest(%(ids)s::bigint[], %(inputs)s::jsonb[], %(reasons)s::text[], %(chosen)s::jsonb[], %(spared)s::jsonb[])
  AS t(id, inputs, reason, chosen, spared) WHERE pools_decision.id = t.id

-- add_decisions: store new decisions.
INSERT INTO pools_decision (pool_id, inputs, delta, reason, chosen, spared)
SELECT * FROM unnest(%(pools)s::bigint[], %(inputs)s::jsonb[], %(deltas)s::int[], %(reasons)s::text[], %(chosen)s::jsonb[], %(spared)s::jsonb[])
RETURNING id, pool_id

-- end_requests: clear scale requests that are met or cannot be met. For `seconds`, new requests count as met by this decision.
UPDATE pools_pool SET scale_requested_at = NULL,
  absorb_until = CASE WHEN id = ANY (%(absorbing)s::bigint[]) THEN now() + make_interval(secs => %(seconds)s) ELSE absorb_until END
WHERE id = ANY (%(pools)s::bigint[])

-- stamp_scaled: start the cool-down after a decision was carried out.
UPDATE pools_pool SET scaled_up_at = CASE WHEN %(delta)s::int > 0 THEN clock_timestamp() ELSE scaled_up_at END,
  scaled_down_at = CASE WHEN %(delta)s::int < 0 THEN clock_timestamp() ELSE scaled_down_at END
WHERE id = %(pool)s

-- set_surge: the extra member that a roll has created; NULL: it has replaced an outdated member.
UPDATE pools_pool SET surge_id = %(member)s WHERE id = %(pool)s

-- stop_roll: stop the roll until an operator orders it again, or the configuration changes.
UPDATE pools_pool SET roll_stopped_at = now(), roll_stop_reason = %(reason)s, changed_at = now() WHERE id = %(pool)s

-- last_number$: the highest number in the names of a pool's members, removed members included.
SELECT coalesce(max(substr(name, length(%(prefix)s::text) + 1)::int), 0) AS n FROM pools_member
WHERE pool_id = %(pool)s AND starts_with(name, %(prefix)s::text) AND substr(name, length(%(prefix)s::text) + 1) ~ '^[0-9]{1,8}$'

-- count_evacuated: the slots that claims of evacuated members lack elsewhere in their pool. A member that became ready since the last plan
-- may have them, and the next plan decides.
-- @not_null pool_id, lanes, slots
SELECT m.pool_id, e.is_scattered, array_agg(DISTINCT w.key)::varchar[] AS lanes, sum(w.value::int)::int AS slots
FROM slots_evacuation e JOIN pools_member m ON m.id = e.member_id CROSS JOIN LATERAL jsonb_each_text(e.wanted) AS w
WHERE m.pool_id = ANY (%(pools)s::bigint[]) AND m.state <> 'gone'
  AND NOT EXISTS (SELECT FROM pools_member n WHERE n.pool_id = m.pool_id AND n.state = 'ready' AND n.state_at > e.planned_at)
GROUP BY e.member_id, m.pool_id
