-- Every hot statement about slots and members alone. Which claim holds what changes only in claims/statements.sql.

-- find_any: k free slots of a lane, wherever they are.
SELECT id, member_id, number FROM slots_slot
WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open
ORDER BY rank, number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_labelled: k free slots of a lane on members that carry the labels.
SELECT slot.id, slot.member_id, slot.number FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.pool_id = %(pool)s AND slot.lane = %(lane)s AND slot.state = 'idle' AND slot.is_open AND member.labels @> %(labels)s::jsonb
ORDER BY slot.rank, slot.number LIMIT {n} FOR NO KEY UPDATE OF slot SKIP LOCKED

-- find_run: k numbers in a row (step apart) on one member, first member first. The window streams: it stops at the first run.
SELECT m.id AS member_id, r.number FROM pools_member m CROSS JOIN LATERAL (
  SELECT number FROM (
    SELECT number, lead(number, {n} - 1) OVER (ORDER BY number) AS last
    FROM slots_slot WHERE member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open) w
  WHERE last = number + ({n} - 1) * %(step)s::int LIMIT 1) r
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND m.labels @> %(labels)s::jsonb ORDER BY m.position, m.id LIMIT 1

-- lock_run: and then lock them; fewer than k came back: somebody was faster, find again.
SELECT id, member_id, number FROM slots_slot
WHERE member_id = %(member)s AND lane = %(lane)s AND number BETWEEN %(number)s::int AND %(number)s::int + ({n} - 1) * %(step)s::int
  AND state = 'idle' AND is_open ORDER BY number FOR NO KEY UPDATE SKIP LOCKED

-- find_together: a member with k free slots.
SELECT m.id AS member_id FROM pools_member m CROSS JOIN LATERAL (
  SELECT FROM slots_slot WHERE member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open OFFSET {n} - 1 LIMIT 1) r
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND m.labels @> %(labels)s::jsonb ORDER BY m.position, m.id LIMIT 1

-- lock_on_member: the lowest k free slots of that member.
SELECT id, member_id, number FROM slots_slot
WHERE member_id = %(member)s AND lane = %(lane)s AND state = 'idle' AND is_open ORDER BY number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_pair: one number in both lanes of one member (TCP and UDP where they are separate listeners).
SELECT a.id, b.id AS other_id, a.member_id, a.number FROM slots_slot a
JOIN slots_slot b ON b.member_id = a.member_id AND b.lane = %(other_lane)s AND b.number = a.number AND b.state = 'idle' AND b.is_open
WHERE a.pool_id = %(pool)s AND a.lane = %(lane)s AND a.state = 'idle' AND a.is_open
ORDER BY a.rank, a.number LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED

-- find_node: the claim's own slot if it still drains, then where its owner was before, then any whose member has the labels.
SELECT slot.id, slot.member_id, slot.number FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.pool_id = %(pool)s AND slot.lane = %(lane)s AND slot.is_open
  AND (slot.state = 'idle' OR slot.state = 'draining' AND slot.last_claim_id = %(claim)s) AND member.labels @> %(labels)s::jsonb
ORDER BY slot.state = 'draining' DESC, slot.last_claim_id = ANY (%(earlier_claims)s::bigint[]) DESC NULLS LAST, slot.rank, slot.number
LIMIT 1 FOR NO KEY UPDATE OF slot SKIP LOCKED

-- find_same_number: the lowest number that is free in every pool. Numbers of each pool come from slot_free only.
SELECT number FROM (
  SELECT number, pool_id FROM slots_slot
  WHERE pool_id = ANY (%(pools)s::bigint[]) AND lane = %(lane)s AND state = 'idle' AND is_open GROUP BY number, pool_id) x
GROUP BY number HAVING count(*) = cardinality(%(pools)s::bigint[]) ORDER BY number LIMIT 1

-- lock_number: that number in one pool.
SELECT id, member_id, number FROM slots_slot
WHERE pool_id = %(pool)s AND lane = %(lane)s AND number = %(number)s AND state = 'idle' AND is_open
ORDER BY rank LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED

-- lock_named: these slots by id, whatever their state: for a claim on a named slot.
SELECT id, pool_id, member_id, lane, number, state, is_open FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- close_member: locks the slots of a member, so it waits for binds under way; later ones find nothing open.
UPDATE slots_slot SET is_open = false, changed_at = now() WHERE member_id = %(member)s AND is_open RETURNING id

-- open_member: the other way round. The caller has locked pool and member and found both willing.
UPDATE slots_slot SET is_open = true, changed_at = now() WHERE member_id = %(member)s AND NOT is_open AND state <> 'retired' RETURNING id

-- is_member_empty: asked after close_member, in the same transaction, before the member is `deleting`.
SELECT NOT EXISTS (SELECT FROM slots_slot WHERE member_id = %(member)s AND state NOT IN ('idle', 'retired'))

-- clean: the world confirmed that a draining slot is empty.
WITH s AS (
  UPDATE slots_slot SET state = 'idle', drain_until = NULL, due_at = NULL, changed_at = now()
  WHERE id = %(slot)s AND state = 'draining' AND generation = %(generation)s RETURNING id, pool_id, member_id, last_claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'clean', pool_id, member_id, id, last_claim_id, generation, 'draining', 'idle', %(actor)s FROM s)
SELECT id FROM s

-- retire_slots: the member was lost or the numbers are withdrawn; only free ones, holders leave by give_back.
WITH s AS (
  UPDATE slots_slot SET state = 'retired', is_open = false, drain_until = NULL, due_at = NULL, changed_at = now()
  FROM (SELECT id, state AS before FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND state IN ('idle', 'draining') ORDER BY id FOR NO KEY UPDATE) o
  WHERE slots_slot.id = o.id RETURNING slots_slot.id, pool_id, member_id, last_claim_id, generation, o.before),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'retire', pool_id, member_id, id, last_claim_id, generation, before, 'retired', %(actor)s, %(reason)s FROM s)
SELECT id FROM s

-- who_held: slot time travel.
SELECT claim_id, generation, verb, after, actor, at FROM kernel_event
WHERE slot_id = %(slot)s AND at <= %(at)s ORDER BY id DESC LIMIT 1

-- beat: a heartbeat of the present incarnation; anything older is no row.
INSERT INTO pools_heartbeat (member_id, incarnation, at, load)
SELECT id, incarnation, now(), %(load)s::jsonb FROM pools_member
WHERE id = %(member)s AND incarnation = %(incarnation)s AND state IN ('creating', 'ready', 'offline')
ON CONFLICT (member_id) DO UPDATE SET incarnation = EXCLUDED.incarnation, at = EXCLUDED.at, load = EXCLUDED.load
RETURNING member_id
