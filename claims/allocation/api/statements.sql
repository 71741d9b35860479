-- claims_access: the facts that permissions on these claims depend on: requester and pools.
SELECT c.id, c.requested_by, c.pool_id, sh.pools, c.state, c.generation
FROM unnest(%(claims)s::bigint[]) WITH ORDINALITY AS t(id, n) JOIN claims_claim c ON c.id = t.id JOIN claims_shape sh ON sh.id = c.shape_id
ORDER BY t.n

-- slot_pool^: the pool of a slot.
SELECT slot.pool_id AS id, pool.name FROM slots_slot slot JOIN pools_pool pool ON pool.id = slot.pool_id WHERE slot.id = %(slot)s
