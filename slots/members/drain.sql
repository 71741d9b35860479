-- Draining: members that take nothing new and go, or rest, once they are empty, at the latest by a deadline.

-- is_over: in a transaction that ends who is still there. Its lock keeps an undrain out until that is done; one that came first is seen.
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
SELECT m.id, m.name, m.pool_id, p.name AS pool, m.drain_until, m.drain_since, m.drain_by, m.note, m.is_leaving, m.drain_until <= now() AS is_over,
  extract(epoch FROM now() - m.drain_until)::float8 AS over_for, n.total, n.held, n.draining
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id CROSS JOIN LATERAL (
  SELECT (count(*) FILTER (WHERE state <> 'retired'))::int AS total, (count(*) FILTER (WHERE state IN ('held', 'reserved')))::int AS held,
    (count(*) FILTER (WHERE state = 'draining'))::int AS draining FROM slots_slot WHERE member_id = m.id) n
WHERE m.drain_until <= now() - make_interval(secs => %(over)s::float8) AND m.state <> 'gone' ORDER BY m.drain_until, m.id LIMIT {n}
