-- drop_holder: every slot that names a claim which does not hold: idle where nothing is outside, else it drains. All at once, as always.
WITH s AS (
  UPDATE slots_slot SET state = CASE WHEN p.queue = '' THEN 'idle' ELSE 'draining' END,
    drain_until = CASE WHEN p.queue <> '' THEN now() + %(drain)s::interval END, due_at = CASE WHEN p.queue <> '' THEN now() END,
    claim_id = NULL, ordinal = NULL, last_claim_id = %(claim)s, changed_at = now()
  FROM pools_pool p
  WHERE p.id = slots_slot.pool_id AND slots_slot.claim_id = %(claim)s
    AND NOT EXISTS (SELECT FROM claims_claim WHERE id = %(claim)s AND state IN ('bound', 'reserved'))
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, slots_slot.generation, slots_slot.state, p.queue),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'repair', pool_id, member_id, id, %(claim)s, generation, 'held', state, %(actor)s, %(reason)s FROM s),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT queue, 'member:' || member_id, 'sync', pool_id, member_id, %(claim)s, generation FROM s WHERE state = 'draining')
SELECT id, state FROM s

-- tell_holder: the log says again what the row says.
WITH s AS (SELECT id, pool_id, member_id, claim_id, generation, state FROM slots_slot WHERE id = %(slot)s FOR NO KEY UPDATE)
INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor, reason)
SELECT 'repair', pool_id, member_id, id, claim_id, generation, state, %(actor)s, %(reason)s FROM s RETURNING id

-- raise_generation: the next hand-over draws a number above all that are there.
SELECT setval('generation', greatest((SELECT max(generation) FROM slots_slot), (SELECT max(generation) FROM claims_claim), 1))

-- look_now: a claim that is blocked by nothing gets a timer, and the finalizer sends it on.
UPDATE claims_claim SET due_at = now() WHERE id = %(claim)s AND state = 'blocked' AND due_at IS NULL RETURNING id

-- look_at_pending: a plan that waits for a person gets a timer again.
UPDATE claims_claim SET due_at = now() WHERE id = %(claim)s AND state IN ('reserved', 'parked') RETURNING id
