-- Every hot statement about slots and members alone. Which claim holds what changes only in claims/statements.sql.

-- find_any: k free slots of a lane, wherever they are.
SELECT id, member_id, number FROM slots_slot
WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open
ORDER BY rank, number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_labelled: k free slots of a lane on members that carry the labels.
SELECT slot.id, slot.member_id, slot.number FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.pool_id = %(pool)s AND slot.lane = %(lane)s AND slot.state = 'idle' AND slot.is_open AND member.labels @> %(labels)s::jsonb
ORDER BY slot.rank, slot.number LIMIT {n} FOR NO KEY UPDATE OF slot SKIP LOCKED

-- find_run^: k numbers in a row (step apart) on one member, first member first. The window streams: it stops at the first run.
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

-- lock_named^: these slots by id, whatever their state: for a claim on a named slot.
SELECT id, pool_id, member_id, lane, number, state, is_open FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- close_member: locks the slots of a member, so it waits for binds under way; later ones find nothing open.
WITH s AS MATERIALIZED (SELECT id FROM slots_slot WHERE member_id = %(member)s AND is_open ORDER BY id FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = false, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- open_member: the other way round. The caller has locked pool and member and found both willing.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND NOT is_open AND state <> 'retired' ORDER BY id FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = true, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- close_some: so many of them, for a pool with very many: see slots/members/open_slots.py.
WITH s AS MATERIALIZED (SELECT id FROM slots_slot WHERE member_id = %(member)s AND is_open ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = false, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- open_some: the other way round.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND NOT is_open AND state <> 'retired' ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = true, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- add_slots: rows for what a member offers, born free. Whether they are open was found out under the locks of pool and member.
INSERT INTO slots_slot (pool_id, member_id, lane, number, rank, is_open)
SELECT %(pool)s, %(member)s, s.lane, s.number, s.rank, %(is_open)s
FROM unnest(%(lanes)s::varchar[], %(numbers)s::int[], %(ranks)s::int[]) AS s (lane, number, rank)

-- lock_slots: all of a member, for whoever changes what it offers: binds under way end first, later ones pass them over.
SELECT id, lane, number, rank, state, is_open, coalesce(claim_id, last_claim_id) AS claim_id, generation
FROM slots_slot WHERE member_id = %(member)s ORDER BY id FOR NO KEY UPDATE

-- offer_slots: numbers that were withdrawn, or lost, are offered again; closed, until pool and member are found willing.
WITH s AS (
  UPDATE slots_slot SET state = 'idle', is_open = false, changed_at = now()
  FROM (SELECT id FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND state = 'retired' ORDER BY id FOR NO KEY UPDATE) o
  WHERE slots_slot.id = o.id RETURNING slots_slot.id, pool_id, member_id, last_claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'offer', pool_id, member_id, id, last_claim_id, generation, 'retired', 'idle', %(actor)s, %(reason)s FROM s)
SELECT id FROM s

-- rank_slots: another placement, another order; who holds what stays.
UPDATE slots_slot SET rank = r.rank FROM unnest(%(slots)s::bigint[], %(ranks)s::int[]) AS r (id, rank)
WHERE slots_slot.id = r.id AND slots_slot.rank <> r.rank

-- retire_free: a member goes; its event says it for all of them.
UPDATE slots_slot SET state = 'retired', is_open = false, drain_until = NULL, due_at = NULL, changed_at = now()
WHERE member_id = %(member)s AND state = 'idle'

-- retire_some: so many of them, of a member that is empty and closed and goes with its pool.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND state = 'idle' AND NOT is_open ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET state = 'retired', drain_until = NULL, due_at = NULL, changed_at = now() FROM s WHERE slots_slot.id = s.id
RETURNING slots_slot.id

-- leave_all: the pool of these members is deleted: they leave, with a deadline that is now; each with its event.
WITH o AS MATERIALIZED (
  SELECT id, state, is_leaving FROM pools_member WHERE pool_id = %(pool)s AND state IN ('creating', 'ready', 'offline')
  ORDER BY id FOR NO KEY UPDATE),
m AS (
  UPDATE pools_member SET is_leaving = true, note = CASE WHEN o.is_leaving THEN note ELSE %(reason)s END, drain_until = now(),
    drain_since = now(), drain_by = %(actor)s, changed_at = now()
  FROM o WHERE pools_member.id = o.id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, before, after, actor, reason)
  SELECT 'remove', %(pool)s, id, state, 'leaving', %(actor)s, %(reason)s FROM o WHERE NOT is_leaving)
SELECT id FROM o

-- has_slots$: whether a pool has so many slots, found by looking at no more than that.
SELECT count(*) = {n} FROM (
  SELECT FROM slots_slot s JOIN pools_member m ON m.id = s.member_id WHERE m.pool_id = %(pool)s AND m.state <> 'gone' LIMIT {n}) x

-- has_members$: the same of members: each takes a dozen statements to go.
SELECT count(*) = {n} FROM (SELECT FROM pools_member WHERE pool_id = %(pool)s AND state <> 'gone' LIMIT {n}) x

-- holders: who keeps a member, or drains on it.
SELECT id, member_id, lane, number, state, coalesce(claim_id, last_claim_id) AS claim_id, generation
FROM slots_slot WHERE member_id = ANY (%(members)s::bigint[]) AND state IN ('held', 'reserved', 'draining') ORDER BY member_id, id

-- is_member_empty$: asked after close_member, in the same transaction, before the member is `deleting`. A state that only its agent has keeps
-- a member like a claim does.
SELECT NOT EXISTS (SELECT FROM slots_slot WHERE member_id = %(member)s AND state NOT IN ('idle', 'retired'))
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = %(member)s)

-- note_unsaved: only the agent of this member has the state of that apply. No row: it is noted already.
INSERT INTO slots_unsavedstate (member_id, claim_id, generation) VALUES (%(member)s, %(claim)s, %(generation)s)
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING id

-- end_unsaved: the server has the state, or a person has given it up.
DELETE FROM slots_unsavedstate WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING member_id

-- lose_unsaved: the member is gone, and with it the only copies; each with its event.
WITH d AS (DELETE FROM slots_unsavedstate WHERE member_id = %(member)s RETURNING claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, claim_id, generation, actor, reason)
  SELECT 'state_lost', %(pool)s, %(member)s, claim_id, generation, %(actor)s, %(reason)s FROM d)
SELECT claim_id, generation FROM d

-- unsaved_of: states that only the agents of these members have.
SELECT member_id, claim_id, generation, noted_at FROM slots_unsavedstate
WHERE member_id = ANY (%(members)s::bigint[]) ORDER BY member_id, claim_id, generation

-- clean^: the world confirmed that a draining slot is empty.
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

-- who_held^: slot time travel.
SELECT claim_id, generation, verb, after, actor, at FROM kernel_event
WHERE slot_id = %(slot)s AND at <= %(at)s ORDER BY id DESC LIMIT 1

-- beat^: a heartbeat of the present incarnation; anything older is no row. It tells what the member is, for those that come back.
WITH m AS (
  SELECT m.id, m.incarnation, m.state, p.spec #>> '{liveness,heartbeat}' AS every
  FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
  WHERE m.id = %(member)s AND m.incarnation = coalesce(%(incarnation)s::int, m.incarnation) AND m.state IN ('creating', 'ready', 'offline')),
b AS (
  INSERT INTO pools_heartbeat (member_id, incarnation, at, load) SELECT id, incarnation, now(), %(load)s::jsonb FROM m
  ON CONFLICT (member_id) DO UPDATE SET incarnation = EXCLUDED.incarnation, at = EXCLUDED.at, load = EXCLUDED.load
  RETURNING member_id)
SELECT m.id AS member_id, m.state, m.incarnation, m.every FROM m JOIN b ON b.member_id = m.id

-- take_due_members: whom the finalizer looks at, longest due first. The timer moves on before the look: a row it can't deal with waits.
UPDATE pools_member SET due_at = now() + make_interval(secs => %(seconds)s)
WHERE id IN (SELECT id FROM pools_member WHERE due_at <= now() ORDER BY due_at LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) RETURNING id

-- silence$: how long nothing was heard of the present incarnation; null: never anything.
SELECT extract(epoch FROM now() - h.at)::float8 FROM pools_heartbeat h JOIN pools_member m ON m.id = h.member_id
WHERE h.member_id = %(member)s AND h.incarnation = m.incarnation

-- to_restart: members that can be started again and are unwell, or were. Few, each found by an index of its own kind.
SELECT m.id FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE (m.state IN ('creating', 'offline') OR m.restarts > 0) AND m.state IN ('creating', 'ready', 'offline')
  AND NOT m.is_leaving AND p.state <> 'deleting' AND p.provider = ANY (%(providers)s::varchar[]) ORDER BY m.id

-- condition^: what decides whether a member is started again; by the database's clock alone.
SELECT m.state, m.down_at IS NOT NULL AS is_down, m.is_down_planned, m.lost_at IS NOT NULL AS is_lost, m.restarts,
  m.gave_up_at IS NOT NULL AS has_given_up, extract(epoch FROM clock_timestamp() - coalesce(m.down_at, m.state_at))::float8 AS for_s,
  EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'draining')) AS is_busy,
  EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id) AS has_unsaved_state
FROM pools_member m WHERE m.id = %(member)s

-- empty_leaving: members that are to go, and nobody keeps them.
SELECT m.id FROM pools_member m
WHERE m.is_leaving AND m.state IN ('creating', 'ready', 'offline')
  AND NOT EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved', 'draining'))
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id) ORDER BY m.id LIMIT {n}

-- lost_with_holders: members that are lost while claims still hold slots there. OFFSET 0: member by member, never a walk over all slots.
SELECT m.id FROM pools_member m
WHERE m.lost_at IS NOT NULL AND m.state <> 'gone'
  AND EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') OFFSET 0) ORDER BY m.id LIMIT {n}

-- take_due_slots: those that drain and are to be looked at, by their deadline or before. The same here: the timer first.
UPDATE slots_slot SET due_at = now() + make_interval(secs => %(seconds)s)
FROM (SELECT id FROM slots_slot WHERE due_at <= now() AND state = 'draining' ORDER BY due_at LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) o
WHERE slots_slot.id = o.id RETURNING slots_slot.id, member_id, pool_id, generation

-- unsynced_members: something is to be done outside and no operation says so. It ended without a word, or was never written.
SELECT m.id AS member_id, m.pool_id, p.queue FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.state IN ('creating', 'deleting') AND p.queue <> ''
  AND NOT EXISTS (SELECT FROM kernel_operation WHERE lane = 'member:' || m.id AND done_at IS NULL ORDER BY due_at OFFSET 0) ORDER BY m.id LIMIT {n}

-- has_operation$: whether somebody will look at this member again anyway; the operation that asks is left out.
SELECT EXISTS (
  SELECT FROM kernel_operation WHERE lane = %(lane)s AND done_at IS NULL AND id <> coalesce(%(but)s::bigint, 0) ORDER BY due_at OFFSET 0)

-- count_slots: how many of each pool are what, by member state, in one pass over the members' slots.
SELECT m.pool_id, s.lane, s.state, s.is_open, m.state AS member_state, m.lost_at IS NOT NULL AS is_lost, count(*) AS n
FROM pools_member m JOIN slots_slot s ON s.member_id = m.id
WHERE m.pool_id = ANY (%(pools)s::bigint[]) AND m.state <> 'gone'
GROUP BY 1, 2, 3, 4, 5, 6

-- count_members: the same for members.
SELECT pool_id, state, is_cordoned, is_leaving, lost_at IS NOT NULL AS is_lost, count(*) AS n
FROM pools_member WHERE pool_id = ANY (%(pools)s::bigint[]) AND state <> 'gone' GROUP BY 1, 2, 3, 4, 5

-- count_overdue: slots that drain for longer than their pool allows, for Prometheus. A draining slot always has a timer.
SELECT p.name AS pool, coalesce(o.n, 0)::int AS n FROM pools_pool p LEFT JOIN (
  SELECT pool_id, count(*) AS n FROM slots_slot
  WHERE due_at IS NOT NULL AND state = 'draining' AND drain_until <= now() GROUP BY pool_id) o ON o.pool_id = p.id
WHERE p.state <> 'gone'

-- slots_outside: what a provider gets to know of the slots of some members.
SELECT id, member_id, lane, number, state, claim_id, last_claim_id, generation,
  state = 'draining' AND drain_until <= now() AS is_overdue
FROM slots_slot WHERE member_id = ANY (%(members)s::bigint[]) ORDER BY member_id, number, lane

-- delete_gone_slots: of members that have been gone for long. Nobody holds a slot there: a member is empty before it goes.
DELETE FROM slots_slot WHERE id IN (
  SELECT s.id FROM (
    SELECT id FROM pools_member WHERE state = 'gone' AND changed_at < now() - make_interval(secs => %(days)s::float8 * 86400) ORDER BY id) m
  CROSS JOIN LATERAL (SELECT id FROM slots_slot WHERE member_id = m.id) s LIMIT {n}) RETURNING id

-- delete_gone_members: those whose slots have been deleted.
WITH m AS MATERIALIZED (
  SELECT id FROM pools_member WHERE state = 'gone' AND changed_at < now() - make_interval(secs => %(days)s::float8 * 86400)
    AND NOT EXISTS (SELECT FROM slots_slot WHERE member_id = pools_member.id) ORDER BY id LIMIT {n}),
h AS (DELETE FROM pools_heartbeat WHERE member_id IN (SELECT id FROM m) RETURNING member_id)
DELETE FROM pools_member WHERE id IN (SELECT id FROM m) AND (SELECT count(*) FROM h) >= 0 RETURNING id

-- Draining: members that take nothing new and go, or rest, once they are empty, at the latest by a deadline.

-- is_over^: in a transaction that ends who is still there. Its lock keeps an undrain out until that is done; one that came first is seen.
SELECT m.id, m.name, m.note, m.drain_by FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.id = %(member)s AND m.drain_until <= clock_timestamp() AND m.state IN ('creating', 'ready', 'offline') AND p.state <> 'deleting'
FOR SHARE OF m

-- over_with_holders: members past their deadline that somebody still holds. OFFSET 0: member by member, never a walk over all slots.
SELECT m.id FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.drain_until <= now() AND m.state IN ('creating', 'ready', 'offline') AND p.state <> 'deleting'
  AND EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') OFFSET 0) ORDER BY m.drain_until, m.id LIMIT {n}

-- to_settle: members that nobody holds any more, and where nothing is worth waiting for: it is clean there, or past both deadlines, that of
-- the slot and that of its member, which goes.
SELECT m.id FROM pools_member m
WHERE m.drain_until IS NOT NULL AND m.state IN ('creating', 'ready', 'offline') AND NOT EXISTS (
  SELECT FROM slots_slot s WHERE s.member_id = m.id AND (s.state IN ('held', 'reserved')
    OR s.state = 'draining' AND NOT (m.is_leaving AND m.drain_until <= now() AND s.drain_until <= now())) OFFSET 0)
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id)
ORDER BY m.drain_until, m.id LIMIT {n}

-- occupied: what is still there, under its locks.
SELECT id, state, generation, drain_until <= now() AS is_overdue FROM slots_slot
WHERE member_id = %(member)s AND state IN ('held', 'reserved', 'draining') ORDER BY id FOR NO KEY UPDATE

-- progress: of members that drain: how much of each is empty, and whether they hang.
-- @not_null over_for
SELECT m.id, m.name, m.pool_id, p.name AS pool, m.drain_until, m.drain_since, m.drain_by, m.note, m.is_leaving, m.drain_until <= now() AS is_over,
  extract(epoch FROM now() - m.drain_until)::float8 AS over_for, n.total, n.held, n.draining
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id CROSS JOIN LATERAL (
  SELECT (count(*) FILTER (WHERE state <> 'retired'))::int AS total, (count(*) FILTER (WHERE state IN ('held', 'reserved')))::int AS held,
    (count(*) FILTER (WHERE state = 'draining'))::int AS draining FROM slots_slot WHERE member_id = m.id) n
WHERE m.drain_until <= now() - make_interval(secs => %(over)s::float8) AND m.state <> 'gone' ORDER BY m.drain_until, m.id LIMIT {n}

-- What agents ask all the time, and their tokens.

-- identity^: the member that a token names, and what of a token it knows. The one that was replaced opens until the new one has been used,
-- and for an hour after it was made.
SELECT m.id, m.name, m.pool_id, p.name AS pool, p.revision, m.incarnation, m.state, m.is_leaving, m.token_hash,
  m.token_used_at IS NOT NULL AS is_used,
  CASE WHEN m.token_used_at IS NULL OR m.token_since > now() - make_interval(secs => %(overlap)s) THEN m.previous_token_hash ELSE '' END AS previous
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id WHERE m.id = %(member)s

-- issue: another token. The one in use goes on to open for a while, if it is of this incarnation and nothing else is said; one that was made
-- and never used is forgotten.
UPDATE pools_member SET token_hash = %(hash)s, token_since = now(), token_used_at = NULL, token_due_at = NULL,
  previous_token_hash = CASE WHEN NOT %(keep)s THEN '' WHEN token_used_at IS NULL AND previous_token_hash <> '' THEN previous_token_hash
    ELSE token_hash END
WHERE id = %(member)s AND incarnation = %(incarnation)s RETURNING id

-- use: the present one came for the first time. Whoever has the row just now does not make it wait: it comes again. An order that is not
-- carried out yet is about the next one.
UPDATE pools_member SET token_used_at = now(), is_previous_ending = is_previous_ending AND token_due_at IS NOT NULL,
  previous_token_hash = CASE WHEN is_previous_ending THEN '' ELSE previous_token_hash END
FROM (SELECT id FROM pools_member WHERE id = %(member)s AND token_hash = %(hash)s AND token_used_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) o
WHERE pools_member.id = o.id RETURNING pools_member.id

-- revoke: none of its tokens opens anything any more.
UPDATE pools_member SET token_hash = '', previous_token_hash = '', token_since = now(), token_used_at = NULL, token_due_at = NULL
WHERE id = %(member)s AND (token_hash <> '' OR previous_token_hash <> '') RETURNING id

-- _due: somebody wants another one, it is old, or the last new one did not reach its agent.
(m.token_due_at IS NOT NULL OR m.token_hash <> '' AND (m.token_since <= now() - make_interval(secs => %(age)s::float8)
  OR (m.token_used_at IS NULL AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8))))

-- is_due$: whether it is time for another token.
SELECT {_due} FROM pools_member m WHERE m.id = %(member)s

-- due: members of a pool whose agents are to get another token, and nobody is on the way with it.
SELECT m.id FROM pools_member m WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND {_due}
  AND NOT EXISTS (SELECT FROM kernel_operation WHERE lane = 'member:' || m.id AND done_at IS NULL ORDER BY due_at OFFSET 0)
ORDER BY m.id LIMIT {n}

-- old: tokens that are worth a look: of agents that somebody else starts, those that are due soon; of ours, what did not get there.
-- @not_null age
SELECT m.id, m.name, m.pool_id, p.name AS pool, m.pool_id = ANY (%(ours)s::bigint[]) AS is_ours,
  extract(epoch FROM now() - m.token_since)::float8 AS age, m.token_used_at IS NULL AS is_untaken
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.state IN ('ready', 'offline') AND m.token_hash <> '' AND p.state <> 'deleting' AND (
  m.pool_id = ANY (%(theirs)s::bigint[]) AND m.token_since <= now() - make_interval(secs => %(age)s::float8 - %(notice)s::float8)
  OR m.pool_id = ANY (%(ours)s::bigint[]) AND m.state = 'ready' AND m.previous_token_hash <> '' AND m.token_used_at IS NULL
    AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8)
  OR m.pool_id = ANY (%(ours)s::bigint[]) AND m.state = 'ready'
    AND m.token_since <= now() - make_interval(secs => %(age)s::float8 + 3600))
ORDER BY m.token_since, m.id LIMIT {n}
