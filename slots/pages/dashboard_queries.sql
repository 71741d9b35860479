-- Reads for pages and live updates. Slots are found through their members, because the index of slots begins with them.

-- _port_class: the displayed class of a port, with the differences outside as `find_kind` of slots/sync/slot_drift.py names them. A held
-- port is running once its target is healthy.
CASE WHEN member.state NOT IN ('ready', 'offline') THEN {_class}
    WHEN slot.state IN ('idle', 'retired') AND EXISTS (SELECT FROM slots_quarantine WHERE slot_id = slot.id) THEN 'quarantine'
    WHEN slot.observed->>'presence' = 'foreign' THEN 'foreign'
    WHEN slot.observed->>'presence' = 'missing' AND (slot.state IN ('held', 'reserved') OR slot.state = 'idle' AND slot.observed->'claim' = 'null')
      THEN 'missing'
    WHEN slot.state IN ('held', 'reserved') AND slot.observed->>'problem' <> '' THEN 'problem'
    WHEN slot.state IN ('held', 'reserved') AND slot.observed->>'changed' <> '' THEN 'changed'
    WHEN slot.state IN ('idle', 'retired') AND slot.observed->>'presence' = 'orphan' THEN 'orphan'
    WHEN slot.state = 'held' AND member.state = 'ready' THEN
      CASE WHEN slot.observed->>'health' IN ('healthy', 'unchecked') THEN 'running' ELSE 'reserved' END
    ELSE {_class} END

-- _class: the displayed class of a slot. Only retired slots need the outcome.
CASE WHEN slot.state = 'retired' OR member.state = 'gone' THEN
      CASE WHEN (SELECT outcome FROM claims_claim WHERE id = slot.last_claim_id) = 'lost' THEN 'lost' ELSE '' END
    WHEN slot.state IN ('held', 'reserved') AND member.state = 'offline' THEN 'offline'
    WHEN slot.state = 'held' THEN CASE WHEN slot.lane IN ('plan', 'any') THEN 'running' ELSE 'bound' END
    WHEN slot.state IN ('reserved', 'draining') THEN slot.state
    WHEN slot.is_open THEN 'idle'
    WHEN member.state IN ('offline', 'creating', 'deleting') THEN 'offline'
    ELSE 'closed' END

-- _shown: gone members are shown for a day, because claims may have been lost with them.
(member.state <> 'gone' OR member.changed_at > now() - interval '1 day')

-- count_slots: counts slots of pools by displayed class and by stored state.
SELECT * FROM (
  SELECT member.pool_id, {_class} AS name, slot.state, count(*)::int AS n
  FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
  WHERE member.pool_id = ANY (%(pools)s::bigint[]) AND {_shown} GROUP BY 1, 2, 3) x
WHERE name <> ''

-- count_members: counts members of pools.
SELECT pool_id, count(*)::int AS there, count(*) FILTER (WHERE state = 'offline')::int AS offline,
  count(*) FILTER (WHERE is_cordoned AND NOT is_leaving)::int AS cordoned, count(*) FILTER (WHERE is_leaving)::int AS leaving
FROM pools_member WHERE pool_id = ANY (%(pools)s::bigint[]) AND state <> 'gone' GROUP BY 1

-- list_members: members of a pool in their fixed order.
SELECT member.id, name, state, is_cordoned, is_leaving, note, labels::text AS labels_json, drain_until, created_at,
  external_id, member.incarnation, lost_at, heartbeat.at AS beat_at, restarts, gave_up_at, outside, drain_by, cordon_by, cordon_note,
  ARRAY(SELECT claim_id FROM slots_unsavedstate WHERE member_id = member.id ORDER BY claim_id) AS unsaved,
  left(coalesce(heartbeat.load->>'version', ''), 60) AS version, CASE WHEN token_hash <> '' THEN token_since END AS token_since,
  token_used_at IS NULL AND previous_token_hash <> '' AS is_token_new,
  EXISTS (SELECT FROM slots_evacuation e WHERE e.member_id = member.id) AS is_evacuating,
  coalesce(spec_digest <> '' AND spec_digest <> (SELECT nullif(member_digest, '') FROM pools_pool WHERE id = %(pool)s), false) AS is_outdated
FROM pools_member member LEFT JOIN pools_heartbeat heartbeat ON heartbeat.member_id = member.id
WHERE member.pool_id = %(pool)s AND (%(member)s::bigint IS NULL OR member.id = %(member)s::bigint) AND {_shown} ORDER BY position, member.id

-- list_cells: slots of members. OFFSET 0 makes the planner go member by member, also with the plan of an empty database.
SELECT member.id AS member_id, slot.id, slot.lane, slot.number, slot.claim_id, slot.last_claim_id, slot.changed_at, slot.state,
  {_class} AS name
FROM pools_member member CROSS JOIN LATERAL (SELECT * FROM slots_slot WHERE member_id = member.id OFFSET 0) slot
WHERE member.id = ANY (%(members)s::bigint[]) ORDER BY member.id, slot.number, slot.lane

-- read_cells: current classes of slots, given by id, by member and by pool; on pages of members, and on pages of ports.
SELECT member.pool_id, slot.id, {_class} AS name, {_port_class} AS port_name
FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.id = ANY (%(slots)s::bigint[])
UNION SELECT member.pool_id, slot.id, {_class} AS name, {_port_class} AS port_name
FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
WHERE member.id = ANY (%(members)s::bigint[]) OR member.pool_id = ANY (%(pools)s::bigint[])

-- count_ports: counts ports of members by displayed class, and by whether a listener uses a part of the quota.
SELECT slot.member_id, {_port_class} AS name,
  (slot.state IN ('held', 'reserved', 'draining') OR coalesce(slot.observed->>'presence', '') IN ('orphan', 'foreign')) AS is_used,
  count(*)::int AS n
FROM pools_member member CROSS JOIN LATERAL (SELECT * FROM slots_slot WHERE member_id = member.id OFFSET 0) slot
WHERE member.id = ANY (%(members)s::bigint[]) GROUP BY 1, 2, 3

-- list_ports: ports of members with what their provider sees.
SELECT member.id AS member_id, slot.id, slot.lane, slot.number, {_port_class} AS name, slot.claim_id, slot.last_claim_id,
  coalesce(slot.observed->>'protocol', '') AS protocol, coalesce(slot.observed->>'health', '') AS health,
  coalesce(slot.observed->>'problem', '') AS problem, coalesce(slot.observed->>'changed', '') AS changed,
  coalesce((SELECT reason FROM slots_quarantine WHERE slot_id = slot.id), '') AS quarantine
FROM pools_member member CROSS JOIN LATERAL (SELECT * FROM slots_slot WHERE member_id = member.id OFFSET 0) slot
WHERE member.id = ANY (%(members)s::bigint[]) ORDER BY member.id, slot.number, slot.lane LIMIT {n}

-- get_port^: one port of a pool, with all that is known of it.
SELECT slot.id, slot.member_id, member.name AS member, slot.lane, slot.number, slot.state, {_port_class} AS name, slot.claim_id,
  slot.last_claim_id, slot.generation, slot.changed_at, slot.observed::text AS observed_json,
  (SELECT reason FROM slots_quarantine WHERE slot_id = slot.id) AS quarantine, (SELECT by_user FROM slots_quarantine WHERE slot_id = slot.id) AS quarantined_by
FROM slots_slot slot JOIN pools_member member ON member.id = slot.member_id
WHERE slot.id = %(slot)s AND member.pool_id = %(pool)s
