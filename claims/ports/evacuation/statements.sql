-- Statements about evacuations. The row of an evacuation is locked after its member and before claims and slots.

-- _evacuation: an evacuation with its member and pool.
SELECT e.member_id, e.by, e.reason, e.stays, e.was_cordoned, e.since, e.moved, e.failed_in_row, e.claim_id, e.generation,
  e.was_ready, e.waits_for, e.stuck::text AS stuck, e.wanted::text AS wanted, e.moved_at,
  coalesce(extract(epoch FROM clock_timestamp() - e.moved_at), 0)::float8 AS waited,
  m.name, m.state, m.lost_at IS NOT NULL AS is_lost, m.pool_id, p.name AS pool, p.queue, p.state AS pool_state,
  p.paused_until IS NOT NULL OR p.frozen_until IS NOT NULL AS is_paused
FROM slots_evacuation e JOIN pools_member m ON m.id = e.member_id JOIN pools_pool p ON p.id = m.pool_id

-- due_evacuations: evacuations with a due step.
SELECT member_id FROM slots_evacuation WHERE due_at <= now() ORDER BY due_at LIMIT {n}

-- lock_due^: locks a due evacuation for one step. No row: another process takes the step, or it was taken.
{_evacuation} WHERE e.member_id = %(member)s AND e.due_at <= clock_timestamp() FOR NO KEY UPDATE OF e SKIP LOCKED

-- lock_any^: locks an evacuation in the transaction that ends it.
{_evacuation} WHERE e.member_id = %(member)s FOR NO KEY UPDATE OF e

-- read_evacuations: the evacuations of these members.
{_evacuation} WHERE e.member_id = ANY (%(members)s::bigint[]) ORDER BY e.since, e.member_id

-- evacuations_of_pool: the evacuations of a pool.
{_evacuation} WHERE m.pool_id = %(pool)s AND m.state <> 'gone' ORDER BY e.since, e.member_id

-- held_by_claims: the slots that claims hold on a member, with the terms of each claim.
-- @not_null ordinal, part, keeps_number
SELECT c.id, c.state, c.generation, c.owner, c.requested_by, c.spec->'slot' IS NOT NULL AS is_named, sh.terms::text AS terms,
  s.id AS slot, s.ordinal, s.lane, s.number, coalesce(part.index, 0) AS part,
  coalesce((part.options->>'same_number')::bool AND cardinality(part.pools) > 1, false)
    OR coalesce((sh.terms->>'same_number')::bool AND cardinality(sh.pools) > 1, false) AS keeps_number
FROM (SELECT id, claim_id, ordinal, lane, number FROM slots_slot
  WHERE member_id = %(member)s AND state IN ('held', 'reserved') OFFSET 0) s
JOIN claims_claim c ON c.id = s.claim_id JOIN claims_shape sh ON sh.id = c.shape_id
LEFT JOIN LATERAL (
  SELECT index, pools, options FROM claims_claimpart
  WHERE claim_id = c.id AND s.ordinal >= first AND s.ordinal < first + count LIMIT 1) part ON true
ORDER BY c.id, s.ordinal

-- free_places: the free slots of a pool that claims may take, on members other than this one, by member and lane.
-- @not_null slots, numbers, ranks
SELECT s.member_id, m.name, m.labels::text AS labels, s.lane, array_agg(s.id ORDER BY s.number) AS slots,
  array_agg(s.number ORDER BY s.number) AS numbers, array_agg(s.rank ORDER BY s.number) AS ranks
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
WHERE s.pool_id = %(pool)s AND s.lane = ANY (%(lanes)s::varchar[]) AND s.state = 'idle' AND s.is_open AND s.member_id <> %(member)s
GROUP BY m.position, s.member_id, m.name, m.labels, s.lane ORDER BY m.position, s.member_id

-- lock_targets: locks these slots. Fewer rows, or a row that is not free: another transaction takes one of them.
SELECT id, state = 'idle' AND is_open AS is_free FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED

-- start_move: the claim has just left slots of the member, which serve on from now.
UPDATE slots_evacuation SET claim_id = %(claim)s, generation = %(generation)s, was_ready = %(was_ready)s,
  moved_at = clock_timestamp(), due_at = clock_timestamp(), waits_for = '', stuck = %(stuck)s::jsonb, wanted = '{}'::jsonb WHERE member_id = %(member)s

-- count_move: a claim has left slots that need no cleaning.
UPDATE slots_evacuation SET moved = moved + 1, due_at = clock_timestamp(), waits_for = '', stuck = %(stuck)s::jsonb, wanted = '{}'::jsonb
WHERE member_id = %(member)s

-- add_departure: a claim has just left slots of an evacuated member, or has returned to it (no slots). The former generations of its hold
-- lead to the new one.
WITH earlier AS (UPDATE slots_departure SET current = %(current)s WHERE claim_id = %(claim)s AND current = %(generation)s)
INSERT INTO slots_departure (generation, claim_id, current, member_id, left_slots)
VALUES (%(generation)s, %(claim)s, %(current)s, %(member)s, %(slots)s::jsonb)

-- left_slots$: the slots that a claim has left in this generation. Not a column of `_evacuation`: a lock of the evacuation that waits for a
-- move would read it from before the move.
SELECT left_slots::text FROM slots_departure WHERE generation = %(generation)s

-- lock_left: locks the slots that a claim has left in this generation and that no other claim has held since.
SELECT s.id, s.state = 'draining' AS is_draining FROM slots_departure d JOIN slots_slot s ON s.member_id = d.member_id
  AND s.state IN ('draining', 'idle') AND s.last_claim_id = d.claim_id AND s.generation = d.generation
WHERE d.generation = %(generation)s ORDER BY s.id FOR NO KEY UPDATE OF s

-- departures_from: departures from a member in holds that go on, other than that of its moving claim, with the slots that no other claim has
-- held since.
SELECT d.generation, d.claim_id, c.owner, c.requested_by, d.left_slots::text AS left_slots, s.id AS slot, s.lane, s.number, s.drain_until,
  s.state = 'draining' AS is_draining
FROM slots_departure d JOIN claims_claim c ON c.id = d.claim_id AND c.state = 'bound' AND c.generation = d.current
JOIN slots_slot s ON s.member_id = d.member_id AND s.state IN ('draining', 'idle') AND s.last_claim_id = d.claim_id
  AND s.generation = d.generation
WHERE d.member_id = %(member)s AND NOT EXISTS (SELECT FROM slots_evacuation e WHERE e.member_id = d.member_id AND e.generation = d.generation)
ORDER BY d.claim_id, d.generation, s.number, s.lane

-- serve_on: keeps the deadline of the slots that the moving claim has left ahead, so that no doctor or metric counts them as overdue.
UPDATE slots_slot SET drain_until = now() + make_interval(secs => %(limit)s::float8) FROM slots_evacuation e
WHERE e.member_id = %(member)s AND slots_slot.member_id = e.member_id AND slots_slot.state = 'draining' AND slots_slot.last_claim_id = e.claim_id
  AND slots_slot.generation = e.generation AND slots_slot.drain_until < now() + make_interval(secs => %(limit)s::float8 / 2)

-- end_move: the slots that the moving claim has left drain from now on, for as long as the pool lets slots drain.
WITH e AS (SELECT member_id, claim_id, generation FROM slots_evacuation WHERE member_id = %(member)s),
s AS (
  UPDATE slots_slot SET drain_until = now() + make_interval(secs => %(limit)s::float8), due_at = now() FROM e
  WHERE slots_slot.member_id = e.member_id AND slots_slot.state = 'draining' AND slots_slot.last_claim_id = e.claim_id
    AND slots_slot.generation = e.generation)
UPDATE slots_evacuation SET claim_id = NULL, generation = NULL, moved_at = NULL, waits_for = '', failed_in_row = 0,
  moved = moved + %(moved)s::int, due_at = clock_timestamp() WHERE member_id = %(member)s

-- open_left: opens the closed slots to which a claim returns. The caller closes them again in the same transaction.
UPDATE slots_slot SET is_open = true WHERE id = ANY (%(slots)s::bigint[]) AND claim_id IS NULL AND NOT is_open RETURNING id

-- close_again: closes the slots that open_left has opened.
UPDATE slots_slot SET is_open = false WHERE id = ANY (%(slots)s::bigint[])

-- note_return: a claim that had arrived has returned to the member, and does not move again.
UPDATE slots_evacuation SET stuck = %(stuck)s::jsonb, moved = greatest(moved - 1, 0), due_at = clock_timestamp() WHERE member_id = %(member)s

-- fail_move: the claim has its former slots again. The next step waits.
UPDATE slots_evacuation SET claim_id = NULL, generation = NULL, moved_at = NULL, stuck = %(stuck)s::jsonb,
  failed_in_row = failed_in_row + 1, waits_for = %(waits_for)s, due_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
WHERE member_id = %(member)s

-- postpone: the next step follows later, and why.
UPDATE slots_evacuation SET waits_for = %(waits_for)s, due_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
WHERE member_id = %(member)s

-- note_stuck: no claim can move now. The scaler reads the slots that are missing.
UPDATE slots_evacuation SET stuck = %(stuck)s::jsonb, wanted = %(wanted)s::jsonb, is_scattered = %(is_scattered)s,
  planned_at = clock_timestamp(), waits_for = '',
  due_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8) WHERE member_id = %(member)s

-- count_draining$: the slots of a member that drain, beside those that the moving claim has left.
SELECT count(*)::int FROM slots_slot s LEFT JOIN slots_evacuation e ON e.member_id = s.member_id AND e.claim_id = s.last_claim_id
  AND e.generation = s.generation WHERE s.member_id = %(member)s AND s.state = 'draining' AND e.member_id IS NULL

-- left_places: the slots that the moving claim has left, with the ordinal of each.
-- @not_null ordinal
SELECT s.id, s.lane, s.number, x.value::int AS ordinal FROM slots_evacuation e JOIN slots_departure d ON d.generation = e.generation CROSS JOIN LATERAL jsonb_each_text(d.left_slots) AS x
CROSS JOIN LATERAL (SELECT id, lane, number FROM slots_slot WHERE id = x.key::bigint OFFSET 0) s WHERE e.member_id = %(member)s ORDER BY ordinal
