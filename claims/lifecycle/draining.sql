-- The claims on draining members, and the facts that decide their fate.

-- holders: the claims that hold slots of the given members, oldest first. OFFSET 0 makes the planner go member by member.
SELECT s.member_id, c.id, c.state, c.step, c.size, c.generation, c.owner, c.requested_by, w.name AS workspace, c.bound_at,
  s.places, s.n,
  coalesce((c.spec->>'retry')::bool, false) AS is_retried,
  c.step <> '' AND EXISTS (SELECT FROM claims_task t WHERE t.claim_id = c.id) AS has_task,
  coalesce((SELECT r.outcome <> 'not_started' FROM claims_run r WHERE r.claim_id = c.id AND r.generation = c.generation), false) AS is_begun
FROM unnest(%(members)s::bigint[]) AS m(id) CROSS JOIN LATERAL (
  SELECT member_id, claim_id, count(*)::int AS n, (array_agg(lane || ' ' || number ORDER BY number, lane))[1:4] AS places
  FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') GROUP BY 1, 2 OFFSET 0) s
JOIN claims_claim c ON c.id = s.claim_id LEFT JOIN claims_workspace w ON w.id = c.workspace_id
ORDER BY s.member_id, c.id

-- holds_on$: whether a claim holds a slot of this member. The caller has locked the claim.
SELECT EXISTS (SELECT FROM slots_slot WHERE claim_id = %(claim)s AND member_id = %(member)s)

-- end_drains: ends the drains of the slots that a claim has left: their deadline is now. A slot becomes idle once it is confirmed as clean.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE last_claim_id = %(claim)s AND state = 'draining' AND drain_until > now() ORDER BY id FOR NO KEY UPDATE)
UPDATE slots_slot SET drain_until = now(), due_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- drains: the deadlines of the members whose slots these claims hold.
-- @not_null claim_id, drain_until
SELECT s.claim_id, m.name, m.drain_until, m.drain_until <= now() AS is_over, m.is_leaving
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
WHERE s.claim_id = ANY (%(claims)s::bigint[]) AND (m.drain_until IS NOT NULL) ORDER BY m.drain_until, m.id
