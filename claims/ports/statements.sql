-- Statements about the ports of claims. Only claims with the field `ports`, or with slots of port pools, reach them.

-- _part: the part to which the slot s of the claim c belongs, if the claim has parts.
LEFT JOIN LATERAL (
  SELECT index, kind, options FROM claims_claimpart WHERE claim_id = c.id AND s.ordinal >= first AND s.ordinal < first + count LIMIT 1) part ON true

-- _other: another live claim to which the target of the slot s belongs.
LEFT JOIN LATERAL (
  SELECT o.id FROM jsonb_array_elements_text(c.backend->'keys'->s.ordinal::int) AS k(target)
  JOIN claims_backendtarget b ON b.pool_id = s.pool_id AND b.target = k.target AND b.claim_id <> c.id
  JOIN claims_claim o ON o.id = b.claim_id AND o.state IN ('bound', 'reserved') LIMIT 1) other ON true

-- port_uses: what the claims of these slots want of their listeners. The slots that the moving claim of an evacuation has left serve on
-- (`slots_outside`), as the ordinals that they had.
-- @not_null kind, certificate
SELECT s.id, s.pool_id, s.lane, coalesce(part.kind, sh.kind) AS kind, coalesce(part.options->>'certificate', '') AS certificate,
  c.backend->>'ip' AS ip, (c.backend->'ports'->>s.ordinal::int)::int AS port, other.id AS other
FROM (
  SELECT s.id, s.pool_id, s.lane, coalesce(s.claim_id, e.claim_id) AS claim_id, coalesce(s.ordinal, (d.left_slots->>s.id::text)::smallint) AS ordinal
  FROM slots_slot s LEFT JOIN slots_evacuation e
    ON e.member_id = s.member_id AND s.state = 'draining' AND e.claim_id = s.last_claim_id AND e.generation = s.generation
  LEFT JOIN slots_departure d ON d.generation = e.generation
  WHERE s.id = ANY (%(slots)s::bigint[]) OFFSET 0) s
JOIN claims_claim c ON c.id = s.claim_id JOIN claims_shape sh ON sh.id = c.shape_id
{_part}
{_other}

-- held_ports: the slots of a claim in the order of their ordinals, with the part of each.
-- @not_null ordinal, kind
SELECT s.id, s.ordinal, s.pool_id, p.name AS pool, p.queue, s.member_id, s.lane, coalesce(part.kind, sh.kind) AS kind, part.index AS part,
  (part.options->>'port')::int AS port
FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id JOIN slots_slot s ON s.claim_id = c.id JOIN pools_pool p ON p.id = s.pool_id
{_part}
WHERE c.id = %(claim)s ORDER BY s.ordinal

-- process_addresses: the addresses of the clients that use this database as Berth's user.
-- @not_null address
SELECT DISTINCT host(client_addr) AS address FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND client_addr IS NOT NULL

-- listeners_at: the listeners at an address, of members of these providers.
-- @not_null step
SELECT m.name AS member, s.lane, s.number, coalesce((p.spec #>> '{slots,segment}')::int, 1) AS step
FROM pools_pool p JOIN pools_member m ON m.pool_id = p.id AND m.state <> 'gone' AND m.addresses ? %(ip)s::text
CROSS JOIN LATERAL (SELECT lane, number FROM slots_slot WHERE member_id = m.id AND state IN ('held', 'reserved') OFFSET 0) s
WHERE p.provider = ANY (%(providers)s::varchar[]) AND p.state <> 'gone' ORDER BY s.number

-- read_backend$: the backend of a claim.
SELECT backend::text FROM claims_claim WHERE id = %(claim)s

-- set_backend: sets the backend of a locked claim. The operations that register it are written in the same transaction.
UPDATE claims_claim SET backend = %(backend)s::jsonb, changed_at = now() WHERE id = %(claim)s

-- drop_targets: gives up the targets of a claim and its wait for others.
WITH b AS (DELETE FROM claims_backendtarget WHERE claim_id = %(claim)s)
DELETE FROM claims_backendconflict WHERE claim_id = %(claim)s

-- take_targets: takes these targets for a claim. A target of another live claim is left out; the target of a claim that holds no slots
-- changes its owner.
INSERT INTO claims_backendtarget AS b (pool_id, target, claim_id)
SELECT DISTINCT t.pool, t.target, %(claim)s::bigint FROM unnest(%(pools)s::bigint[], %(targets)s::varchar[]) AS t(pool, target) ORDER BY 1, 2
ON CONFLICT (pool_id, target) DO UPDATE SET claim_id = EXCLUDED.claim_id
WHERE b.claim_id = EXCLUDED.claim_id OR (SELECT state FROM claims_claim WHERE id = b.claim_id) NOT IN ('bound', 'reserved')
RETURNING pool_id, target

-- add_conflicts: remembers the targets for which a claim waits.
INSERT INTO claims_backendconflict (claim_id, pool_id, target)
SELECT DISTINCT %(claim)s::bigint, t.pool, t.target FROM unnest(%(pools)s::bigint[], %(targets)s::varchar[]) AS t(pool, target)
ON CONFLICT (claim_id, pool_id, target) DO NOTHING

-- list_conflicts: claims that wait for a target which no other live claim has any more, or that have ended.
SELECT DISTINCT w.claim_id FROM claims_backendconflict w CROSS JOIN LATERAL (SELECT state FROM claims_claim WHERE id = w.claim_id OFFSET 0) c
WHERE c.state = 'ended' OR c.state IN ('bound', 'reserved') AND NOT EXISTS (
  SELECT FROM claims_backendtarget b JOIN claims_claim o ON o.id = b.claim_id
  WHERE b.pool_id = w.pool_id AND b.target = w.target AND b.claim_id <> w.claim_id AND o.state IN ('bound', 'reserved'))
ORDER BY w.claim_id LIMIT {n}

-- conflicts_of: the targets for which a claim waits.
SELECT pool_id, target FROM claims_backendconflict WHERE claim_id = %(claim)s ORDER BY pool_id, target

-- end_conflicts: removes targets for which a claim waited.
DELETE FROM claims_backendconflict WHERE claim_id = %(claim)s AND (pool_id, target) IN (
  SELECT t.pool, t.target FROM unnest(%(pools)s::bigint[], %(targets)s::varchar[]) AS t(pool, target))

-- shown_ports: the slots of claims as they are shown, each with its listener as it was observed.
-- @not_null claim_id, ordinal
SELECT s.claim_id, s.ordinal, s.id AS slot, p.name AS pool, m.name AS member, m.addresses::text AS addresses, s.lane, s.number, s.observed::text AS observed
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = s.pool_id
WHERE s.claim_id = ANY (%(claims)s::bigint[]) ORDER BY s.claim_id, s.ordinal

-- shown_parts: the parts and the backend of claims. Part `index` has the `count` slots from the ordinal `first`.
SELECT c.id AS claim_id, c.backend::text AS backend, part.index AS part, part.kind, part.pools, part.count, part.first, part.options::text AS options
FROM unnest(%(claims)s::bigint[]) AS t(id) JOIN claims_claim c ON c.id = t.id LEFT JOIN claims_claimpart part ON part.claim_id = c.id
ORDER BY c.id, part.index

-- other_owners: for each slot of these claims whose target belongs to another live claim, that claim.
-- @not_null claim_id, ordinal, other
SELECT s.claim_id, s.ordinal, other.id AS other FROM slots_slot s JOIN claims_claim c ON c.id = s.claim_id
{_other}
WHERE s.claim_id = ANY (%(claims)s::bigint[]) AND other.id IS NOT NULL

-- member_addresses: the addresses of members.
SELECT id, addresses::text AS addresses FROM pools_member WHERE id = ANY (%(members)s::bigint[])
