-- Statements about slots and members. Only claims/statements.sql changes the holder of a slot.

-- find_any: the first n free slots of a lane, on any member.
SELECT id, member_id, number FROM slots_slot
WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open
ORDER BY rank, number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_labelled: the first n free slots of a lane on members that have the labels.
SELECT slot.id, slot.member_id, slot.number FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.pool_id = %(pool)s AND slot.lane = %(lane)s AND slot.state = 'idle' AND slot.is_open AND selects(%(labels)s::jsonb, member.labels)
ORDER BY slot.rank, slot.number LIMIT {n} FOR NO KEY UPDATE OF slot SKIP LOCKED

-- _willing_members: the members with the labels that take claims, in the order of the pool. A nested loop keeps this order, so a search in
-- each of them ends with the first member that has what is wanted.
(SELECT id FROM pools_member
  WHERE pool_id = %(pool)s AND state = 'ready' AND NOT is_cordoned AND selects(%(labels)s::jsonb, labels) ORDER BY position, id OFFSET 0)

-- find_run^: n free numbers, `step` apart, on one member; the first member in the pool's order wins. The window
-- function streams and stops at the first run.
SELECT m.id AS member_id, r.number FROM {_willing_members} m CROSS JOIN LATERAL (
  SELECT number FROM (
    SELECT number, lead(number, {n} - 1) OVER (ORDER BY number) AS last
    FROM slots_slot WHERE member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open) w
  WHERE last = number + ({n} - 1) * %(step)s::int LIMIT 1) r
LIMIT 1

-- find_long_run^: find_run for large n, which does not read every free number. It looks at the n numbers from a free number and reads them
-- from the end to the first that is not free: a run can only begin after that.
-- @not_null number
SELECT m.id AS member_id, r.number FROM {_willing_members} m CROSS JOIN LATERAL (
  WITH RECURSIVE w (number, free) AS (
    (SELECT number, 0::bigint FROM slots_slot WHERE member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open ORDER BY number LIMIT 1)
    UNION ALL
    SELECT CASE WHEN last.free > 0 THEN w.number + ({n} - last.free)::int * %(step)s::int ELSE later.number END, last.free
    FROM w CROSS JOIN LATERAL (
      SELECT coalesce((
        SELECT n - 1 FROM (
          SELECT number, row_number() OVER (ORDER BY number DESC) AS n FROM slots_slot
          WHERE member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open
            AND number BETWEEN w.number AND w.number + ({n} - 1) * %(step)s::int) x
        WHERE number <> w.number + ({n} - n) * %(step)s::int LIMIT 1), {n}) AS free OFFSET 0) last
    LEFT JOIN LATERAL (
      SELECT number FROM slots_slot WHERE last.free = 0 AND member_id = m.id AND lane = %(lane)s AND state = 'idle' AND is_open
        AND number > w.number + ({n} - 1) * %(step)s::int ORDER BY number LIMIT 1) later ON true
    WHERE w.free < {n} AND w.number IS NOT NULL)
  SELECT number FROM w WHERE free = {n}) r
LIMIT 1

-- lock_run: locks the slots of a run that find_run returned. Fewer than n rows: another claim took a slot, and the
-- caller searches again.
SELECT id, member_id, number FROM slots_slot
WHERE member_id = %(member)s AND lane = %(lane)s AND number BETWEEN %(number)s::int AND %(number)s::int + ({n} - 1) * %(step)s::int
  AND state = 'idle' AND is_open ORDER BY number FOR NO KEY UPDATE SKIP LOCKED

-- find_node: the claim's own slot if it still drains, else a slot of the owner's earlier claims, else any free slot
-- on a member with the labels.
SELECT slot.id, slot.member_id, slot.number FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.pool_id = %(pool)s AND slot.lane = %(lane)s AND slot.is_open
  AND (slot.state = 'idle' OR slot.state = 'draining' AND slot.last_claim_id = %(claim)s) AND selects(%(labels)s::jsonb, member.labels)
ORDER BY slot.state = 'draining' DESC, slot.last_claim_id = ANY (%(earlier_claims)s::bigint[]) DESC NULLS LAST, slot.rank, slot.number
LIMIT 1 FOR NO KEY UPDATE OF slot SKIP LOCKED

-- lock_named^: locks slots by id in any state, for a claim on a named slot.
SELECT id, pool_id, member_id, lane, number, state, is_open FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- close_member: closes all slots of a member. The row locks wait for binds in progress; later binds find no open slot.
WITH s AS MATERIALIZED (SELECT id FROM slots_slot WHERE member_id = %(member)s AND is_open ORDER BY id FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = false, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- open_member: opens all slots of a member that are in no quarantine. The caller has locked pool and member and checked that both offer slots.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND NOT is_open AND state <> 'retired'
    AND NOT EXISTS (SELECT FROM slots_quarantine q WHERE q.slot_id = slots_slot.id)
  ORDER BY id FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = true, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- close_some: closes at most n slots of a member, for large pools (slots/members/open_slots.py).
WITH s AS MATERIALIZED (SELECT id FROM slots_slot WHERE member_id = %(member)s AND is_open ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = false, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- open_some: opens at most n slots of a member, for large pools.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND NOT is_open AND state <> 'retired'
    AND NOT EXISTS (SELECT FROM slots_quarantine q WHERE q.slot_id = slots_slot.id)
  ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET is_open = true, changed_at = now() FROM s WHERE slots_slot.id = s.id RETURNING slots_slot.id

-- quarantine_slot: closes a slot until its quarantine ends. A bind in progress holds the row, so it comes before or finds no open slot.
WITH q AS (
  INSERT INTO slots_quarantine (slot_id, pool_id, reason, by_user) VALUES (%(slot)s, %(pool)s, %(reason)s, %(by)s)
  ON CONFLICT DO NOTHING RETURNING slot_id)
UPDATE slots_slot SET is_open = false, changed_at = now() FROM q WHERE slots_slot.id = q.slot_id RETURNING slots_slot.id

-- end_quarantine: the caller opens the slot if its member offers slots.
DELETE FROM slots_quarantine WHERE slot_id = %(slot)s RETURNING slot_id

-- reserve_member_id$: the next new member gets a higher id than this one.
SELECT setval(pg_get_serial_sequence('pools_member', 'id'), greatest(%(id)s::bigint, nextval(pg_get_serial_sequence('pools_member', 'id'))))

-- raise_member_ids: the next new member gets a higher id than this one. The sequence does not go back.
SELECT setval(pg_get_serial_sequence('pools_member', 'id'), %(id)s::bigint) AS last FROM pools_member_id_seq WHERE last_value < %(id)s::bigint

-- lacks_member_ids$: whether the pool is older than a restore of this database and has not been looked at since. Objects outside may have
-- the marks of ids that a newer copy of the database gave to its members. project.kernel.doctor.restore_detection writes the place.
SELECT EXISTS (
  SELECT FROM pools_pool p, (
    SELECT CASE WHEN (k.server, k.database, k.timeline) = (c.system_identifier, d.oid::bigint, left(pg_walfile_name(pg_current_wal_lsn()), 8))
      THEN k.since ELSE clock_timestamp() END AS at
    FROM kernel_database_place k, pg_control_system() c, pg_database d WHERE k.id = 1 AND d.datname = current_database()) restored
  WHERE p.id = %(pool)s AND p.created_at < restored.at AND coalesce(p.observed_at < restored.at, true))

-- skip_member_ids$: leaves out so many ids.
SELECT setval(pg_get_serial_sequence('pools_member', 'id'), nextval(pg_get_serial_sequence('pools_member', 'id')) + %(count)s::bigint)

-- add_slots: adds free slots to a member. The caller has determined `is_open` under the locks of pool and member.
INSERT INTO slots_slot (pool_id, member_id, lane, number, rank, is_open)
SELECT %(pool)s, %(member)s, s.lane, s.number, s.rank, %(is_open)s
FROM unnest(%(lanes)s::varchar[], %(numbers)s::int[], %(ranks)s::int[]) AS s (lane, number, rank)

-- shared_ports: the first ports of all slots that members of a provider offer, with the number of ports of each.
-- @not_null step
SELECT s.member_id, s.lane, s.number, coalesce((p.spec #>> '{slots,segment}')::int, 1) AS step
FROM pools_pool p JOIN pools_member m ON m.pool_id = p.id AND m.state <> 'gone'
CROSS JOIN LATERAL (SELECT member_id, lane, number FROM slots_slot WHERE member_id = m.id AND state <> 'retired' OFFSET 0) s
WHERE p.provider = %(provider)s AND p.state <> 'gone'

-- lock_slots: locks all slots of a member before its offer changes. Binds in progress end first; later binds skip the
-- rows.
SELECT id, lane, number, rank, state, is_open, coalesce(claim_id, last_claim_id) AS claim_id, generation
FROM slots_slot WHERE member_id = %(member)s ORDER BY id FOR NO KEY UPDATE

-- offer_slots: offers retired slots again, closed until the caller has checked pool and member.
WITH s AS (
  UPDATE slots_slot SET state = 'idle', is_open = false, changed_at = now()
  FROM (SELECT id FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND state = 'retired' ORDER BY id FOR NO KEY UPDATE) o
  WHERE slots_slot.id = o.id RETURNING slots_slot.id, pool_id, member_id, last_claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'offer', pool_id, member_id, id, last_claim_id, generation, 'retired', 'idle', %(actor)s, %(reason)s FROM s)
SELECT id FROM s

-- rank_slots: changes the order of slots after a change of placement; holders stay.
UPDATE slots_slot SET rank = r.rank FROM unnest(%(slots)s::bigint[], %(ranks)s::int[]) AS r (id, rank)
WHERE slots_slot.id = r.id AND slots_slot.rank <> r.rank

-- retire_free: retires the free slots of a member that is removed. The event of the member covers them.
UPDATE slots_slot SET state = 'retired', is_open = false, drain_until = NULL, due_at = NULL, changed_at = now()
WHERE member_id = %(member)s AND state = 'idle'

-- retire_some: retires at most n slots of an empty, closed member of a deleted pool.
WITH s AS MATERIALIZED (
  SELECT id FROM slots_slot WHERE member_id = %(member)s AND state = 'idle' AND NOT is_open ORDER BY id LIMIT {n} FOR NO KEY UPDATE)
UPDATE slots_slot SET state = 'retired', drain_until = NULL, due_at = NULL, changed_at = now() FROM s WHERE slots_slot.id = s.id
RETURNING slots_slot.id

-- mark_all_leaving: marks all members of a deleted pool as leaving, with an immediate deadline and an event each.
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

-- has_slots$: whether a pool has at least n slots; reads at most n rows.
SELECT count(*) = {n} FROM (
  SELECT FROM slots_slot s JOIN pools_member m ON m.id = s.member_id WHERE m.pool_id = %(pool)s AND m.state <> 'gone' LIMIT {n}) x

-- has_members$: whether a pool has at least n members. The removal of a member takes a dozen statements.
SELECT count(*) = {n} FROM (SELECT FROM pools_member WHERE pool_id = %(pool)s AND state <> 'gone' LIMIT {n}) x

-- holders: slots that keep members from leaving: held, reserved or draining.
SELECT id, member_id, lane, number, state, coalesce(claim_id, last_claim_id) AS claim_id, generation
FROM slots_slot WHERE member_id = ANY (%(members)s::bigint[]) AND state IN ('held', 'reserved', 'draining') ORDER BY member_id, id

-- is_member_empty$: whether a member may become `deleting`; read after close_member in the same transaction. A
-- Terraform state that only the member's agent has keeps the member like a claim does.
SELECT NOT EXISTS (SELECT FROM slots_slot WHERE member_id = %(member)s AND state NOT IN ('idle', 'retired'))
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = %(member)s)

-- note_unsaved: records that only the agent of this member has the state of an apply. No row: the record exists.
INSERT INTO slots_unsavedstate (member_id, claim_id, generation) VALUES (%(member)s, %(claim)s, %(generation)s)
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING id

-- delete_unsaved: deletes the record of an unsaved state: the server has the state, or an operator discarded it.
DELETE FROM slots_unsavedstate WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING member_id

-- lose_unsaved: deletes the records of unsaved states of a lost member, with an event each.
WITH d AS (DELETE FROM slots_unsavedstate WHERE member_id = %(member)s RETURNING claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, claim_id, generation, actor, reason)
  SELECT 'state_lost', %(pool)s, %(member)s, claim_id, generation, %(actor)s, %(reason)s FROM d)
SELECT claim_id, generation FROM d

-- unsaved_of: states that only the agents of these members have.
SELECT member_id, claim_id, generation, noted_at FROM slots_unsavedstate
WHERE member_id = ANY (%(members)s::bigint[]) ORDER BY member_id, claim_id, generation

-- free_slot^: makes a draining slot idle after the provider or the agent confirmed that it is empty.
WITH s AS (
  UPDATE slots_slot SET state = 'idle', drain_until = NULL, due_at = NULL, changed_at = now()
  WHERE id = %(slot)s AND state = 'draining' AND generation = %(generation)s RETURNING id, pool_id, member_id, last_claim_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'clean', pool_id, member_id, id, last_claim_id, generation, 'draining', 'idle', %(actor)s FROM s)
SELECT id FROM s

-- retire_slots: retires free and draining slots of a lost member, or of withdrawn numbers. Held slots are given up by
-- give_back.
WITH s AS (
  UPDATE slots_slot SET state = 'retired', is_open = false, drain_until = NULL, due_at = NULL, changed_at = now()
  FROM (SELECT id, state AS before FROM slots_slot WHERE id = ANY (%(slots)s::bigint[]) AND state IN ('idle', 'draining') ORDER BY id FOR NO KEY UPDATE) o
  WHERE slots_slot.id = o.id RETURNING slots_slot.id, pool_id, member_id, last_claim_id, generation, o.before),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'retire', pool_id, member_id, id, last_claim_id, generation, before, 'retired', %(actor)s, %(reason)s FROM s)
SELECT id FROM s

-- holder_at^: the use of a slot at a moment, from its last event before. claim_id is NULL if the slot was free.
SELECT CASE WHEN after IN ('held', 'reserved', 'bound') THEN claim_id END AS claim_id, generation, at AS since, verb, actor FROM kernel_event
WHERE slot_id = %(slot)s AND at <= %(at)s ORDER BY id DESC LIMIT 1

-- store_heartbeat^: stores a heartbeat of the current incarnation; an older incarnation gets no row. The result has the
-- member's state, so that the caller can bring an offline member back.
WITH m AS (
  SELECT m.id, m.incarnation, m.state, p.spec #>> '{liveness,heartbeat}' AS every
  FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
  WHERE m.id = %(member)s AND m.incarnation = coalesce(%(incarnation)s::int, m.incarnation) AND m.state IN ('creating', 'ready', 'offline')),
b AS (
  INSERT INTO pools_heartbeat (member_id, incarnation, at, load) SELECT id, incarnation, now(), %(load)s::jsonb FROM m
  ON CONFLICT (member_id) DO UPDATE SET incarnation = EXCLUDED.incarnation, at = EXCLUDED.at, load = EXCLUDED.load
  RETURNING member_id)
SELECT m.id AS member_id, m.state, m.incarnation, m.every FROM m JOIN b ON b.member_id = m.id

-- take_due_members: takes the members with a due timer, longest due first. The timer moves before the work, so a row
-- that fails waits for the next interval.
UPDATE pools_member SET due_at = now() + make_interval(secs => %(seconds)s)
WHERE id IN (SELECT id FROM pools_member WHERE due_at <= now() ORDER BY due_at LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) RETURNING id

-- seconds_since_heartbeat$: seconds since the last heartbeat of the current incarnation; null without a heartbeat.
SELECT extract(epoch FROM now() - h.at)::float8 FROM pools_heartbeat h JOIN pools_member m ON m.id = h.member_id
WHERE h.member_id = %(member)s AND h.incarnation = m.incarnation

-- to_restart: members that can be restarted and are unwell, or were. They are few, and an index finds each kind.
SELECT m.id FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE (m.state IN ('creating', 'offline') OR m.restarts > 0) AND m.state IN ('creating', 'ready', 'offline')
  AND NOT m.is_leaving AND p.state <> 'deleting' AND p.provider = ANY (%(providers)s::varchar[]) ORDER BY m.id

-- restart_condition^: the facts that decide on a restart, all by the database's clock. The columns have the order of
-- RestartCondition.
SELECT m.state, extract(epoch FROM clock_timestamp() - coalesce(m.down_at, m.state_at))::float8 AS for_s,
  m.down_at IS NOT NULL AS is_down, m.is_down_planned,
  EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'draining')) AS is_busy,
  m.lost_at IS NOT NULL AS is_lost, m.restarts, m.gave_up_at IS NOT NULL AS has_given_up,
  EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id) AS has_unsaved_state
FROM pools_member m WHERE m.id = %(member)s

-- empty_leaving: leaving members that are empty.
SELECT m.id FROM pools_member m
WHERE m.is_leaving AND m.state IN ('creating', 'ready', 'offline')
  AND NOT EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved', 'draining'))
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id) ORDER BY m.id LIMIT {n}

-- lost_with_holders: lost members that still have holders. OFFSET 0 makes the planner go member by member instead
-- of over all slots.
SELECT m.id FROM pools_member m
WHERE m.lost_at IS NOT NULL AND m.state <> 'gone'
  AND EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') OFFSET 0) ORDER BY m.id LIMIT {n}

-- take_due_slots: takes the draining slots with a due timer. The timer moves before the work.
UPDATE slots_slot SET due_at = now() + make_interval(secs => %(seconds)s)
FROM (SELECT id FROM slots_slot WHERE due_at <= now() AND state = 'draining' ORDER BY due_at LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) o
WHERE slots_slot.id = o.id RETURNING slots_slot.id, member_id, pool_id, generation

-- unsynced_members: members that are created or deleted outside and have no open operation: it failed without a retry,
-- or was never written.
SELECT m.id AS member_id, m.pool_id, p.queue FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.state IN ('creating', 'deleting') AND p.queue <> ''
  AND NOT EXISTS (SELECT FROM kernel_operation WHERE lane = 'member:' || m.id AND done_at IS NULL ORDER BY due_at OFFSET 0) ORDER BY m.id LIMIT {n}

-- has_operation$: whether another open operation will handle this member; the asking operation is left out.
SELECT EXISTS (
  SELECT FROM kernel_operation WHERE lane = %(lane)s AND done_at IS NULL AND id <> ALL (%(but)s::bigint[]) ORDER BY due_at OFFSET 0)

-- count_slots: counts slots of pools by state and by state of their member, in one pass.
SELECT m.pool_id, s.lane, s.state, s.is_open, m.state AS member_state, m.lost_at IS NOT NULL AS is_lost, count(*) AS n
FROM pools_member m JOIN slots_slot s ON s.member_id = m.id
WHERE m.pool_id = ANY (%(pools)s::bigint[]) AND m.state <> 'gone'
GROUP BY 1, 2, 3, 4, 5, 6

-- count_members: counts members of pools by state.
SELECT pool_id, state, is_cordoned, is_leaving, lost_at IS NOT NULL AS is_lost, count(*) AS n
FROM pools_member WHERE pool_id = ANY (%(pools)s::bigint[]) AND state <> 'gone' GROUP BY 1, 2, 3, 4, 5

-- count_overdue: counts draining slots past their deadline, for Prometheus. A draining slot always has a timer.
SELECT p.name AS pool, coalesce(o.n, 0)::int AS n FROM pools_pool p LEFT JOIN (
  SELECT pool_id, count(*) AS n FROM slots_slot
  WHERE due_at IS NOT NULL AND state = 'draining' AND drain_until <= now() GROUP BY pool_id) o ON o.pool_id = p.id
WHERE p.state <> 'gone'

-- slots_outside: the slots of members as a provider gets them: the member, then the fields of SlotSnapshot. A slot that the moving claim
-- of an evacuation has left serves on: it is given as held, and has its use as before.
SELECT s.member_id, s.id, s.lane, s.number, CASE WHEN e.member_id IS NULL THEN s.state ELSE 'held' END AS state, s.claim_id, s.last_claim_id,
  s.generation, coalesce(s.state = 'draining' AND s.drain_until <= now() AND e.member_id IS NULL, false) AS is_overdue
FROM slots_slot s LEFT JOIN slots_evacuation e
  ON e.member_id = s.member_id AND s.state = 'draining' AND e.claim_id = s.last_claim_id AND e.generation = s.generation
WHERE s.member_id = ANY (%(members)s::bigint[]) ORDER BY s.member_id, s.number, s.lane

-- delete_gone_slots: deletes slots of members that have been gone for `days`. A member is empty before it goes, so no
-- claim holds these slots.
WITH gone AS (DELETE FROM slots_slot WHERE id IN (
  SELECT s.id FROM (
    SELECT id FROM pools_member WHERE state = 'gone' AND changed_at < now() - make_interval(secs => %(days)s::float8 * 86400) ORDER BY id) m
  CROSS JOIN LATERAL (SELECT id FROM slots_slot WHERE member_id = m.id) s LIMIT {n}) RETURNING id),
q AS (DELETE FROM slots_quarantine WHERE slot_id IN (SELECT id FROM gone))
SELECT id FROM gone

-- delete_gone_members: deletes gone members without slots.
WITH m AS MATERIALIZED (
  SELECT id FROM pools_member WHERE state = 'gone' AND changed_at < now() - make_interval(secs => %(days)s::float8 * 86400)
    AND NOT EXISTS (SELECT FROM slots_slot WHERE member_id = pools_member.id) ORDER BY id LIMIT {n}),
h AS (DELETE FROM pools_heartbeat WHERE member_id IN (SELECT id FROM m) RETURNING member_id)
DELETE FROM pools_member WHERE id IN (SELECT id FROM m) AND (SELECT count(*) FROM h) >= 0 RETURNING id

-- Drains.

-- lock_overdue^: locks an overdue member in the transaction that evicts its claims. No row: its deadline has not passed,
-- or its drain was cancelled. The lock delays an undrain until
-- the eviction is done; an earlier undrain is visible here.
SELECT m.id, m.name, m.note, m.drain_by FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.id = %(member)s AND m.drain_until <= clock_timestamp() AND m.state IN ('creating', 'ready', 'offline') AND p.state <> 'deleting'
FOR SHARE OF m

-- overdue_with_holders: members past their deadline that claims still hold. OFFSET 0 makes the planner go member by
-- member instead of over all slots.
SELECT m.id FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.drain_until <= now() AND m.state IN ('creating', 'ready', 'offline') AND p.state <> 'deleting'
  AND EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') OFFSET 0) ORDER BY m.drain_until, m.id LIMIT {n}

-- finishable_drains: members with a drain that can end: all slots are clean, or the member leaves and both deadlines have
-- passed, that of the slot and that of the member.
SELECT m.id FROM pools_member m
WHERE m.drain_until IS NOT NULL AND m.state IN ('creating', 'ready', 'offline') AND NOT EXISTS (
  SELECT FROM slots_slot s WHERE s.member_id = m.id AND (s.state IN ('held', 'reserved')
    OR s.state = 'draining' AND NOT (m.is_leaving AND m.drain_until <= now() AND s.drain_until <= now())) OFFSET 0)
  AND NOT EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = m.id)
ORDER BY m.drain_until, m.id LIMIT {n}

-- occupied: locks the occupied slots of a member.
SELECT id, state, generation, drain_until <= now() AS is_overdue FROM slots_slot
WHERE member_id = %(member)s AND state IN ('held', 'reserved', 'draining') ORDER BY id FOR NO KEY UPDATE

-- stuck_drains: members that still have occupied slots after their drain deadline.
-- @not_null over_for
SELECT m.name, m.pool_id, p.name AS pool, m.note, extract(epoch FROM now() - m.drain_until)::float8 AS over_for, n.held, n.draining
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id CROSS JOIN LATERAL (
  SELECT (count(*) FILTER (WHERE state IN ('held', 'reserved')))::int AS held,
    (count(*) FILTER (WHERE state = 'draining'))::int AS draining FROM slots_slot WHERE member_id = m.id) n
WHERE m.drain_until <= now() - make_interval(secs => %(over)s::float8) AND m.state <> 'gone' ORDER BY m.drain_until, m.id LIMIT {n}

-- Evacuations.

-- lock_evacuation^: locks the evacuation of a locked member. No row: the member is not being evacuated.
SELECT member_id, claim_id, was_cordoned, stays, reason FROM slots_evacuation WHERE member_id = %(member)s FOR NO KEY UPDATE

-- is_evacuating$: whether a member is being evacuated.
SELECT EXISTS (SELECT FROM slots_evacuation WHERE member_id = %(member)s)

-- end_evacuation: deletes the evacuation of a member. Slots that its moving claim has left drain from now on.
WITH e AS (DELETE FROM slots_evacuation WHERE member_id = %(member)s RETURNING member_id, claim_id, generation)
UPDATE slots_slot SET drain_until = now() + make_interval(secs => %(limit)s::float8), due_at = now() FROM e
WHERE slots_slot.member_id = e.member_id AND slots_slot.state = 'draining' AND slots_slot.last_claim_id = e.claim_id
  AND slots_slot.generation = e.generation
RETURNING slots_slot.id

-- Tokens of agents.

-- identity^: the member that a token names, and its token hashes. The replaced token is valid until the new token is
-- used, and for an hour after the new token was issued.
SELECT m.id, m.name, m.pool_id, p.name AS pool, p.revision, m.incarnation, m.state, m.is_leaving, m.token_hash,
  m.token_used_at IS NOT NULL AS is_used,
  CASE WHEN m.token_used_at IS NULL OR m.token_since > now() - make_interval(secs => %(overlap)s) THEN m.previous_token_hash ELSE '' END AS previous
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id WHERE m.id = %(member)s

-- issue_token: replaces the token of a member. A used token of this incarnation stays valid for a while if `keep` is
-- set; a token that was issued but never used is dropped.
UPDATE pools_member SET token_hash = %(hash)s, token_since = now(), token_used_at = NULL, token_due_at = NULL,
  previous_token_hash = CASE WHEN NOT %(keep)s THEN '' WHEN token_used_at IS NULL AND previous_token_hash <> '' THEN previous_token_hash
    ELSE token_hash END
WHERE id = %(member)s AND incarnation = %(incarnation)s RETURNING id

-- mark_token_used: records the first use of the current token. SKIP LOCKED: a call never waits for a locked row,
-- because a later call records the use. An order that is still open concerns the next token.
UPDATE pools_member SET token_used_at = now(), is_previous_ending = is_previous_ending AND token_due_at IS NOT NULL,
  previous_token_hash = CASE WHEN is_previous_ending THEN '' ELSE previous_token_hash END
FROM (SELECT id FROM pools_member WHERE id = %(member)s AND token_hash = %(hash)s AND token_used_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) o
WHERE pools_member.id = o.id RETURNING pools_member.id

-- revoke_tokens: invalidates all tokens of a member.
UPDATE pools_member SET token_hash = '', previous_token_hash = '', token_since = now(), token_used_at = NULL, token_due_at = NULL
WHERE id = %(member)s AND (token_hash <> '' OR previous_token_hash <> '') RETURNING id

-- _due: a new token is ordered, the token is old, or the last new token did not reach its agent.
(m.token_due_at IS NOT NULL OR m.token_hash <> '' AND (m.token_since <= now() - make_interval(secs => %(age)s::float8)
  OR (m.token_used_at IS NULL AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8))))

-- is_due$: whether a member is due for a new token.
SELECT {_due} FROM pools_member m WHERE m.id = %(member)s

-- due_for_token: members of a pool that are due for a new token and have no open operation.
SELECT m.id FROM pools_member m WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND {_due}
  AND NOT EXISTS (SELECT FROM kernel_operation WHERE lane = 'member:' || m.id AND done_at IS NULL ORDER BY due_at OFFSET 0)
ORDER BY m.id LIMIT {n}

-- old_tokens: tokens for an operator to check: tokens that expire soon where agents are started by hand, and new tokens
-- that did not reach an agent where Berth hands them over.
-- `remaining` is the time until a new token is due; negative: overdue.
-- @not_null age, remaining
SELECT m.name, m.pool_id, p.name AS pool, m.pool_id = ANY (%(ours)s::bigint[]) AS is_ours,
  extract(epoch FROM now() - m.token_since)::float8 AS age, m.token_used_at IS NULL AS is_untaken,
  %(age)s::float8 - extract(epoch FROM now() - m.token_since)::float8 AS remaining
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.state IN ('ready', 'offline') AND m.token_hash <> '' AND p.state <> 'deleting' AND (
  m.pool_id = ANY (%(theirs)s::bigint[]) AND m.token_since <= now() - make_interval(secs => %(age)s::float8 - %(notice)s::float8)
  OR m.pool_id = ANY (%(ours)s::bigint[]) AND m.state = 'ready' AND m.previous_token_hash <> '' AND m.token_used_at IS NULL
    AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8)
  OR m.pool_id = ANY (%(ours)s::bigint[]) AND m.state = 'ready'
    AND m.token_since <= now() - make_interval(secs => %(age)s::float8 + 3600))
ORDER BY m.token_since, m.id LIMIT {n}
