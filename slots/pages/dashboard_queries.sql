-- Reads for pages and live deltas: slots as they are shown. Slots are found by their members, as their index does.

-- _class: what a slot is shown as; the same rule as slot_class in display.py. Outcomes are looked up for the few retired slots only.
CASE WHEN slot.state = 'retired' OR member.state = 'gone' THEN
      CASE WHEN (SELECT outcome FROM claims_claim WHERE id = slot.last_claim_id) = 'lost' THEN 'lost' ELSE '' END
    WHEN slot.state IN ('held', 'reserved') AND member.state = 'offline' THEN 'offline'
    WHEN slot.state = 'held' THEN CASE WHEN slot.lane IN ('plan', 'any') THEN 'running' ELSE 'bound' END
    WHEN slot.state IN ('reserved', 'draining') THEN slot.state
    WHEN slot.is_open THEN 'idle'
    WHEN member.state IN ('offline', 'creating', 'deleting') THEN 'offline'
    ELSE 'closed' END

-- _shown: a member that has gone is shown for a day, if claims were lost with it.
(member.state <> 'gone' OR member.changed_at > now() - interval '1 day')

-- count_slots: of many pools, by what they are shown as and by what is stored.
SELECT * FROM (
  SELECT member.pool_id, {_class} AS name, slot.state, count(*)::int AS n
  FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
  WHERE member.pool_id = ANY (%(pools)s::bigint[]) AND {_shown} GROUP BY 1, 2, 3) x
WHERE name <> ''

-- count_members: of many pools.
SELECT pool_id, count(*)::int AS there, count(*) FILTER (WHERE state = 'offline')::int AS offline,
  count(*) FILTER (WHERE is_cordoned AND NOT is_leaving)::int AS cordoned, count(*) FILTER (WHERE is_leaving)::int AS leaving
FROM pools_member WHERE pool_id = ANY (%(pools)s::bigint[]) AND state <> 'gone' GROUP BY 1

-- list_members: of a pool, in their order, which does not change.
SELECT member.id, pool_id, name, state, is_cordoned, is_leaving, note, labels::text AS labels, drain_until, created_at, changed_at,
  external_id, member.incarnation, lost_at, heartbeat.at AS beat_at, restarts, gave_up_at, outside, drain_since, drain_by, cordon_by, cordon_note,
  ARRAY(SELECT claim_id FROM slots_unsavedstate WHERE member_id = member.id ORDER BY claim_id) AS unsaved,
  coalesce(heartbeat.load->>'version', '') AS version, CASE WHEN token_hash <> '' THEN token_since END AS token_since,
  token_used_at IS NULL AND previous_token_hash <> '' AS is_token_new,
  coalesce(spec_digest <> '' AND spec_digest <> (SELECT nullif(member_digest, '') FROM pools_pool WHERE id = %(pool)s), false) AS is_outdated
FROM pools_member member LEFT JOIN pools_heartbeat heartbeat ON heartbeat.member_id = member.id
WHERE member.pool_id = %(pool)s AND (%(member)s::bigint IS NULL OR member.id = %(member)s::bigint) AND {_shown} ORDER BY position, member.id

-- list_cells: the slots of some members. OFFSET 0: member by member, also when planned on an empty database.
SELECT member.id AS member_id, slot.id, slot.lane, slot.number, slot.claim_id, slot.last_claim_id, slot.changed_at, slot.state,
  {_class} AS name
FROM pools_member member CROSS JOIN LATERAL (SELECT * FROM slots_slot WHERE member_id = member.id OFFSET 0) slot
WHERE member.id = ANY (%(members)s::bigint[]) ORDER BY member.id, slot.number, slot.lane

-- read_cells: the present class of some slots, of all slots of some members, and of whole pools.
SELECT member.pool_id, slot.id, {_class} AS name FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.id = ANY (%(slots)s::bigint[])
UNION SELECT member.pool_id, slot.id, {_class} AS name FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
WHERE member.id = ANY (%(members)s::bigint[]) OR member.pool_id = ANY (%(pools)s::bigint[])

-- classify^: for the test that holds the rule here against the one in display.py.
SELECT {_class} AS name FROM (SELECT %(state)s::text AS state, %(lane)s::text AS lane, %(is_open)s::bool AS is_open, %(claim)s::bigint AS last_claim_id) slot,
  (SELECT %(member_state)s::text AS state) member
