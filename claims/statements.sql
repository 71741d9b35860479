-- All statements that bind or release a slot. One statement changes the claim and its slots, the event and the operation, and the database
-- checks after each statement that claim and slots agree. The conditions guard against races; the caller checks the returned rows.
-- An operation is written only if the pool's provider has work outside (pools_pool.queue is not empty).

-- _meet: the first claims of queues (CTE `line`: id, n) meet the first free slots of one lane. Both ways to a batch share this text.
free AS MATERIALIZED (
  SELECT id, member_id, row_number() OVER () AS n FROM (
    SELECT id, member_id FROM slots_slot WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open AND {_willing}
    ORDER BY rank, number LIMIT (SELECT count(*) FROM line) FOR NO KEY UPDATE SKIP LOCKED) x),
pair AS MATERIALIZED (
  SELECT line.id AS claim_id, free.id AS slot_id, member_id, nextval('generation') AS generation FROM line JOIN free USING (n)),
{_bind_pairs}

-- _bind_pairs: each claim of `pair` (claim_id, slot_id, member_id, generation) gets its one slot: both rows, the event, the operation.
-- @not_null waited
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = pair.claim_id, ordinal = 0, generation = pair.generation, changed_at = now()
  FROM pair WHERE slots_slot.id = pair.slot_id),
c AS (
  UPDATE claims_claim SET generation = pair.generation, {_bound} FROM pair WHERE claims_claim.id = pair.claim_id
  RETURNING claims_claim.id AS claim_id, extract(epoch FROM bound_at - created_at)::float8 AS waited),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'bind', %(pool)s, member_id, slot_id, claim_id, generation, 'waiting', 'bound', %(actor)s FROM pair),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT %(queue)s::varchar, 'member:' || member_id, 'sync', %(pool)s, member_id, claim_id, generation FROM pair WHERE %(queue)s::varchar <> '')
SELECT claim_id, slot_id, pair.generation, c.waited FROM pair JOIN c USING (claim_id)

-- _bound: the columns of a claim that gets its slots. A task succeeds only with its plan, so its attempts are kept. The transaction may
-- be older than the claim, hence statement_timestamp().
state = 'bound', bound_at = statement_timestamp(), changed_at = now(), acknowledged_at = NULL, passed = 0, attempts = CASE WHEN step = '' THEN 0 ELSE attempts END,
    due_at = statement_timestamp() + make_interval(secs => (spec->>'due_in')::float8)

-- _create_one: a simple claim with its slot and event.
WITH q AS MATERIALIZED (
  SELECT id, %(pool_name)s::varchar AS name, %(rank)s::smallint AS rank, paused_until IS NULL AND frozen_until IS NULL AS is_willing FROM pools_pool WHERE id = %(pool)s AND revision = %(revision)s AND state IN ('pending', 'active')
    AND EXISTS (SELECT FROM claims_shape WHERE id = %(shape)s AND digest = %(line)s AND lanes = %(lanes)s::varchar[])
    AND (%(told)s::text IS NULL OR token_told(%(token)s::varchar) = %(told)s::text) FOR KEY SHARE),
{_rivals},
free AS MATERIALIZED (
  SELECT f.id, f.member_id, f.number, l.lane FROM q, unnest(%(lanes)s::text[]) AS l(lane), LATERAL (
    SELECT id, member_id, number FROM slots_slot WHERE pool_id = q.id AND lane = l.lane AND state = 'idle' AND is_open
      AND q.is_willing AND %(state)s::text = 'waiting' AND {_unclaimed}
    ORDER BY rank, number LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) f
  LIMIT 1),
c AS (
  INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by, key, body_digest, rank, spec, workspace_id, is_serial, step,
    state, generation, bound_at, due_at)
  SELECT %(shape)s, q.id, %(owner)s, %(requested_by)s, %(key)s, %(digest)s, %(rank)s, %(spec)s::jsonb, %(workspace)s, %(is_serial)s, %(step)s,
    CASE WHEN f.id IS NULL THEN %(state)s ELSE 'bound' END, CASE WHEN f.id IS NULL THEN 0 ELSE nextval('generation') END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() + make_interval(secs => (%(spec)s::jsonb->>'due_in')::float8) END
  FROM q LEFT JOIN free f ON true
  ON CONFLICT (requested_by, key) DO NOTHING RETURNING id, state, generation, created_at, bound_at),
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = c.id, ordinal = 0, generation = c.generation, changed_at = now()
  FROM c, free WHERE slots_slot.id = free.id AND c.state = 'bound'),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor, reason)
  SELECT 'create', %(pool)s, free.member_id, free.id, c.id, c.generation, c.state, %(actor)s, %(reason)s FROM c LEFT JOIN free ON true)

-- _created_one: the row of the new claim with its slot, so that the caller reads nothing again.
SELECT c.id, c.state, c.generation, c.created_at, c.bound_at, free.id AS slot_id, free.member_id, free.lane, free.number, m.name AS member, m.labels::text AS labels
FROM c LEFT JOIN free ON true LEFT JOIN pools_member m ON m.id = free.member_id

-- _rivals: the queues that hold back a new claim of the pool q (id, name, rank), because a claim of equal or better rank waits in them:
-- the lanes that they accept and the labels that they need (NULL: any). A queue that released slots would not help (passable) holds
-- nothing back. The recursion hops from one queue with a waiting claim to the next, however many queues the pool has. A claim over
-- several pools is stored under its first pool; queues that name this pool later are found by its name. OFFSET 0 forces the planner to
-- look up single rows.
rivals AS MATERIALIZED (
  SELECT q.id AS pool, sh.lanes, nullif(sh.terms->'selector', '{}'::jsonb) AS labels FROM q, LATERAL (
    WITH RECURSIVE w AS (
      (SELECT rank, shape_id FROM claims_claim WHERE pool_id = q.id AND state = 'waiting' AND rank <= q.rank ORDER BY rank, shape_id LIMIT 1)
      UNION ALL
      SELECT n.rank, n.shape_id FROM w, LATERAL (
        SELECT rank, shape_id FROM claims_claim
        WHERE pool_id = q.id AND state = 'waiting' AND rank <= q.rank AND (rank, shape_id) > (w.rank, w.shape_id)
        ORDER BY rank, shape_id LIMIT 1) n)
    SELECT shape_id FROM w) w, LATERAL (SELECT lanes, terms, wait_reason FROM claims_shape WHERE id = w.shape_id OFFSET 0) sh
  WHERE sh.wait_reason->'passable' IS DISTINCT FROM 'true'::jsonb
  UNION ALL
  SELECT q.id, sh.lanes, nullif(sh.terms->'selector', '{}'::jsonb) FROM q, claims_shape sh, LATERAL (
    SELECT FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' AND rank <= q.rank ORDER BY rank, id LIMIT 1) w
  WHERE sh.pools[2:16] @> ARRAY[q.name]::varchar[] AND sh.wait_reason->'passable' IS DISTINCT FROM 'true'::jsonb)

-- _unclaimed: no rival takes slots of the lane l.lane, or this slot because of the labels of its member. The first condition is checked
-- once for each lane. The second (OFFSET 0: for each slot) is checked only where a rival needs labels.
NOT EXISTS (SELECT FROM rivals WHERE rivals.pool = q.id AND l.lane = ANY (rivals.lanes) AND rivals.labels IS NULL)
      AND NOT EXISTS (
        SELECT FROM rivals, pools_member m
        WHERE rivals.pool = q.id AND l.lane = ANY (rivals.lanes) AND m.id = slots_slot.member_id AND selects(rivals.labels, m.labels) OFFSET 0)

-- _willing: the pool is active and takes new claims. The slots of a very large pool are closed in pieces after a pause begins, and no
-- claim may be bound to those that are still open.
(SELECT state = 'active' AND paused_until IS NULL AND frozen_until IS NULL FROM pools_pool WHERE id = %(pool)s)

-- _drain: the end of a slot's drain after its claim has left: as configured in the pool, never 0.
CASE WHEN p.queue <> '' THEN now() + coalesce((p.spec #>> '{drain,limit}')::interval, %(drain)s::interval) END

-- bind_batch: the first claims of some queues meet the first free slots of one lane, in queue order.
WITH line AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY rank, id) AS n FROM (
    SELECT c.id, c.rank FROM unnest(%(shapes)s::bigint[]) AS sh(id), LATERAL (
      SELECT id, rank FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.rank, c.id LIMIT {n}) x),
{_meet}

-- bind_batch_before: bind_batch for the claims ahead of a claim that is not simple.
WITH line AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY rank, id) AS n FROM (
    SELECT c.id, c.rank FROM unnest(%(shapes)s::bigint[]) AS sh(id), LATERAL (
      SELECT id, rank FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' AND (rank, id) < (%(rank)s::smallint, %(claim)s::bigint)
      ORDER BY rank, id LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.rank, c.id LIMIT {n}) x),
{_meet}

-- bind_batch_past: bind_batch past waiting claims that did not fit (waiters). It takes at most as many slots as each of them may still be
-- passed by, and counts them on each. Their rows are locked first, so two batches count one after the other. Slots of members with the
-- labels of other waiters (kept) are not taken.
WITH ahead AS MATERIALIZED (
  SELECT id, size - passed AS room FROM claims_claim WHERE id = ANY (%(waiters)s::bigint[]) AND state = 'waiting' ORDER BY id FOR NO KEY UPDATE),
line AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY rank, id) AS n FROM (
    SELECT c.id, c.rank FROM unnest(%(shapes)s::bigint[]) AS sh(id), LATERAL (
      SELECT id, rank FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' AND (rank, id) < (%(rank)s::smallint, %(claim)s::bigint)
      ORDER BY rank, id LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.rank, c.id LIMIT (SELECT greatest(0, least({n}, min(room))) FROM ahead)) x),
free AS MATERIALIZED (
  SELECT id, member_id, row_number() OVER () AS n FROM (
    SELECT id, member_id FROM slots_slot WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open AND {_willing}
      AND NOT EXISTS (
        SELECT FROM unnest(%(kept)s::jsonb[]) AS k(labels), pools_member m WHERE m.id = slots_slot.member_id AND selects(k.labels, m.labels) OFFSET 0)
    ORDER BY rank, number LIMIT (SELECT count(*) FROM line) FOR NO KEY UPDATE SKIP LOCKED) x),
pair AS MATERIALIZED (
  SELECT line.id AS claim_id, free.id AS slot_id, member_id, nextval('generation') AS generation FROM line JOIN free USING (n)),
passed AS (
  UPDATE claims_claim SET passed = passed + (SELECT count(*) FROM pair) FROM ahead WHERE claims_claim.id = ahead.id AND EXISTS (SELECT FROM pair)),
{_bind_pairs}

-- heads_of_queues: the first claim of each of some queues.
SELECT sh.id AS shape, c.rank, c.id AS claim FROM unnest(%(shapes)s::bigint[]) AS sh(id), LATERAL (
  SELECT rank, id FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT 1) c

-- create_and_bind^: POST of a simple claim. The claim is bound at once if a slot is free and no claim of equal or better rank waits for
-- that slot in a rival queue; else it waits. Lanes that accept few kinds come first, and the nested loop keeps the order. The pool's row
-- is checked under the lock that the foreign key takes anyway, before any slot, because the caller's cached facts may be outdated and a
-- pool in deletion takes no claim. No row: the key exists (read that claim), the pool or queue has changed, or the caller's permissions
-- have changed (`told` is NULL: they were checked before).
-- @nullable token
{_create_one},
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT %(queue)s::varchar, 'member:' || member_id, 'sync', %(pool)s, member_id, c.id, c.generation FROM c, free WHERE %(queue)s::varchar <> '')
{_created_one}

-- create_and_bind_here^: create_and_bind for a pool without operations. A statement that may write an operation costs 5 % more, even if
-- it writes none.
-- @nullable token
{_create_one}
{_created_one}

-- create_and_bind_several: create_and_bind for a claim that any free slots of some lanes of one pool serve, `counts` of each lane. The
-- claim gets all of them, or it waits. `ordinals`: their ordinals, lane after lane. One row for each slot in the order of the ordinals; a
-- claim that waits has one row. {n} is at least the number of slots, so that the planner expects few.
WITH q AS MATERIALIZED (
  SELECT id, %(pool_name)s::varchar AS name, %(rank)s::smallint AS rank, paused_until IS NULL AND frozen_until IS NULL AS is_willing FROM pools_pool WHERE id = %(pool)s AND revision = %(revision)s AND state IN ('pending', 'active')
    AND EXISTS (SELECT FROM claims_shape WHERE id = %(shape)s AND digest = %(line)s AND lanes = %(lanes)s::varchar[]) FOR KEY SHARE),
{_rivals},
free AS MATERIALIZED (
  SELECT *, (%(ordinals)s::smallint[])[row_number() OVER ()] AS ordinal FROM (
    SELECT f.id, f.member_id, f.number, l.lane FROM q, unnest(%(lanes)s::text[], %(counts)s::int[]) AS l(lane, count), LATERAL (
      SELECT id, member_id, number FROM slots_slot WHERE pool_id = q.id AND lane = l.lane AND state = 'idle' AND is_open AND q.is_willing AND {_unclaimed}
      ORDER BY rank, number LIMIT l.count FOR NO KEY UPDATE SKIP LOCKED) f
    LIMIT {n}) x),
c AS (
  INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by, key, body_digest, rank, spec, size, step, state, generation, bound_at, due_at)
  SELECT %(shape)s, q.id, %(owner)s, %(requested_by)s, %(key)s, %(digest)s, %(rank)s, %(spec)s::jsonb, %(size)s, %(step)s,
    CASE WHEN f.is_whole THEN 'bound' ELSE 'waiting' END, CASE WHEN f.is_whole THEN nextval('generation') ELSE 0 END,
    CASE WHEN f.is_whole THEN statement_timestamp() END,
    CASE WHEN f.is_whole THEN statement_timestamp() + make_interval(secs => (%(spec)s::jsonb->>'due_in')::float8) END
  FROM q, (SELECT count(*) = %(size)s AS is_whole FROM free) f
  ON CONFLICT (requested_by, key) DO NOTHING RETURNING id, state, generation, created_at, bound_at),
held AS MATERIALIZED (
  SELECT c.id AS claim_id, generation, free.* FROM c JOIN free ON c.state = 'bound'),
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = held.claim_id, ordinal = held.ordinal, generation = held.generation, changed_at = now()
  FROM held WHERE slots_slot.id = held.id),
{_add_parts},
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'create', %(pool)s, NULL::bigint, NULL::bigint, id, 0, '', 'waiting', %(actor)s FROM c
  UNION ALL SELECT 'bind', %(pool)s, member_id, id, claim_id, generation, 'waiting', 'bound', %(actor)s FROM held),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT %(queue)s::varchar, 'member:' || member_id, 'sync', %(pool)s, member_id, claim_id, generation FROM held WHERE %(queue)s::varchar <> '')
SELECT c.id, c.state, c.generation, c.created_at, c.bound_at, held.id AS slot_id, held.member_id, held.lane, held.number,
  m.name AS member, m.labels::text AS labels, m.addresses::text AS addresses
FROM c LEFT JOIN held ON true LEFT JOIN pools_member m ON m.id = held.member_id ORDER BY held.ordinal

-- _add_parts: the parts of the new claim c, if it has any.
p AS (
  INSERT INTO claims_claimpart (claim_id, index, kind, pools, count, first, options)
  SELECT c.id, t.* FROM c, jsonb_to_recordset(%(parts)s::jsonb)
    AS t(index smallint, kind varchar, pools varchar[], count smallint, first smallint, options jsonb))

-- create_batch: POST of many simple claims of one queue and rank, by the rules of create_and_bind. Ids are drawn first, so that a claim
-- whose key exists (no row) leaves its slot free.
-- @null_items keys, digests
WITH q AS MATERIALIZED (
  SELECT id, %(pool_name)s::varchar AS name, %(rank)s::smallint AS rank, paused_until IS NULL AND frozen_until IS NULL AS is_willing FROM pools_pool WHERE id = %(pool)s AND revision = %(revision)s AND state IN ('pending', 'active')
    AND EXISTS (SELECT FROM claims_shape WHERE id = %(shape)s AND digest = %(line)s AND lanes = %(lanes)s::varchar[]) FOR KEY SHARE),
{_rivals},
asked AS MATERIALIZED (
  SELECT nextval(pg_get_serial_sequence('claims_claim', 'id')) AS id, n, owner, key, digest, spec
  FROM q, unnest(%(owners)s::varchar[], %(keys)s::varchar[], %(digests)s::bytea[], %(specs)s::jsonb[]) WITH ORDINALITY AS t(owner, key, digest, spec, n)),
free AS MATERIALIZED (
  SELECT id, member_id, number, lane, row_number() OVER () AS n FROM (
    SELECT f.id, f.member_id, f.number, l.lane FROM q, unnest(%(lanes)s::text[]) AS l(lane), LATERAL (
      SELECT id, member_id, number FROM slots_slot WHERE pool_id = q.id AND lane = l.lane AND state = 'idle' AND is_open AND q.is_willing AND {_unclaimed}
      ORDER BY rank, number LIMIT (SELECT count(*) FROM asked) FOR NO KEY UPDATE SKIP LOCKED) f
    LIMIT (SELECT count(*) FROM asked)) x),
c AS (
  INSERT INTO claims_claim (id, shape_id, pool_id, owner, requested_by, key, body_digest, rank, spec, step, state, generation, bound_at, due_at)
  SELECT asked.id, %(shape)s, q.id, asked.owner, %(requested_by)s, asked.key, asked.digest, %(rank)s, asked.spec, %(step)s,
    CASE WHEN f.id IS NULL THEN 'waiting' ELSE 'bound' END, CASE WHEN f.id IS NULL THEN 0 ELSE nextval('generation') END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() + make_interval(secs => (asked.spec->>'due_in')::float8) END
  FROM q, asked LEFT JOIN free f USING (n) ORDER BY n
  ON CONFLICT (requested_by, key) DO NOTHING RETURNING id, state, generation, created_at, bound_at),
made AS MATERIALIZED (
  SELECT c.id, c.state, c.generation, c.created_at, c.bound_at, asked.n, free.id AS slot_id, free.member_id, free.lane, free.number
  FROM c JOIN asked USING (id) LEFT JOIN free USING (n)),
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = made.id, ordinal = 0, generation = made.generation, changed_at = now()
  FROM made WHERE slots_slot.id = made.slot_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor)
  SELECT 'create', %(pool)s, member_id, slot_id, id, generation, state, %(actor)s FROM made),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT %(queue)s::varchar, 'member:' || member_id, 'sync', %(pool)s, member_id, id, generation FROM made
  WHERE slot_id IS NOT NULL AND %(queue)s::varchar <> '')
SELECT made.*, m.name AS member, m.labels::text AS labels FROM made LEFT JOIN pools_member m ON m.id = made.member_id

-- create_gathered: simultaneous POSTs of simple claims, each queue in its own pool, by the rules of create_and_bind, in one statement and
-- commit. A claim without a row is created by itself. Queues and claims are passed as JSON, one value each, which costs both sides less
-- than an array for each column. A locked pool is left out, so that only its own claims wait for the lock. The limits give the planner
-- the small numbers.
WITH q AS MATERIALIZED (
  SELECT p.id, p.is_willing, t.* FROM (
    SELECT * FROM json_to_recordset(%(lines)s::json) AS l(
      n bigint, pool bigint, revision bigint, name varchar, queue varchar, rank smallint, shape bigint, line bytea, lanes varchar[], count int)
    LIMIT {n}) t,
  LATERAL (
    SELECT id, paused_until IS NULL AND frozen_until IS NULL AS is_willing FROM pools_pool WHERE id = t.pool AND revision = t.revision AND state IN ('pending', 'active')
      AND EXISTS (SELECT FROM claims_shape WHERE id = t.shape AND digest = t.line AND lanes = t.lanes OFFSET 0)
    FOR KEY SHARE SKIP LOCKED) p),
{_rivals},
callers AS MATERIALIZED (
  SELECT n FROM json_to_recordset(%(callers)s::json) AS t(n int, token varchar, told text) WHERE told IS NULL OR token_told(token) = told),
asked AS MATERIALIZED (
  SELECT nextval(pg_get_serial_sequence('claims_claim', 'id')) AS id, t.*, row_number() OVER (PARTITION BY t.of ORDER BY t.n) AS k,
    q.id AS pool, q.shape, q.queue, q.rank
  FROM (
    SELECT * FROM json_to_recordset(%(claims)s::json) AS j(
      n int, of bigint, caller int, owner varchar, requested_by varchar, key varchar, digest bytea, spec text, step varchar, actor varchar)
    LIMIT {n}) t
  JOIN q ON q.n = t.of WHERE t.caller IN (SELECT n FROM callers)),
free AS MATERIALIZED (
  SELECT q.n AS of, f.id, f.member_id, f.number, f.lane, f.k FROM q, LATERAL (
    SELECT x.*, row_number() OVER () AS k FROM (
      SELECT s.id, s.member_id, s.number, l.lane FROM unnest(q.lanes) AS l(lane), LATERAL (
        SELECT id, member_id, number FROM slots_slot WHERE pool_id = q.id AND lane = l.lane AND state = 'idle' AND is_open AND q.is_willing AND {_unclaimed}
        ORDER BY rank, number LIMIT q.count FOR NO KEY UPDATE SKIP LOCKED) s
      LIMIT q.count) x) f),
c AS (
  INSERT INTO claims_claim (id, shape_id, pool_id, owner, requested_by, key, body_digest, rank, spec, step, state, generation, bound_at, due_at)
  SELECT a.id, a.shape, a.pool, a.owner, a.requested_by, a.key, a.digest, a.rank, a.spec::jsonb, a.step,
    CASE WHEN f.id IS NULL THEN 'waiting' ELSE 'bound' END, CASE WHEN f.id IS NULL THEN 0 ELSE nextval('generation') END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() END,
    CASE WHEN f.id IS NOT NULL THEN statement_timestamp() + make_interval(secs => (a.spec::jsonb->>'due_in')::float8) END
  FROM asked a LEFT JOIN free f USING (of, k) ORDER BY a.n
  ON CONFLICT (requested_by, key) DO NOTHING RETURNING id, state, generation, created_at, bound_at),
made AS MATERIALIZED (
  SELECT c.id, c.state, c.generation, c.created_at, c.bound_at, a.n, a.pool, a.queue, a.actor, f.id AS slot_id, f.member_id, f.lane, f.number
  FROM c JOIN asked a USING (id) LEFT JOIN free f USING (of, k)),
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = made.id, ordinal = 0, generation = made.generation, changed_at = now()
  FROM made WHERE slots_slot.id = made.slot_id AND slots_slot.id = ANY (ARRAY(SELECT slot_id FROM made))),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor)
  SELECT 'create', pool, member_id, slot_id, id, generation, state, actor FROM made),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT queue, 'member:' || member_id, 'sync', pool, member_id, id, generation FROM made WHERE slot_id IS NOT NULL AND queue <> '')
SELECT made.id, made.state, made.generation, made.created_at, made.bound_at, made.n, made.slot_id, made.member_id, made.lane, made.number,
  m.name AS member, m.labels::text AS labels
FROM made LEFT JOIN LATERAL (SELECT name, labels FROM pools_member WHERE id = made.member_id OFFSET 0) m ON true

-- hold_queue^: keeps the queue of a claim without pools from being deleted until this transaction has created the claim. No row: the
-- queue is gone.
SELECT id FROM claims_shape WHERE id = %(queue)s AND digest = %(digest)s FOR KEY SHARE

-- lock_route: locks the pools and the queue in which a claim is created. A deletion of one of them and these locks exclude each other.
-- No row: the queue is gone.
SELECT p.id, p.revision, p.state FROM pools_pool p, claims_shape q
WHERE p.id = ANY (%(pools)s::bigint[]) AND q.id = %(queue)s AND q.digest = %(digest)s ORDER BY p.id FOR KEY SHARE

-- create^: a claim that is not simple, or of a missing pool. The claim waits or is blocked. No row: the key exists.
WITH c AS (
  INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by, key, body_digest, rank, spec, size, workspace_id, is_serial, step, state)
  VALUES (%(shape)s, %(pool)s, %(owner)s, %(requested_by)s, %(key)s, %(digest)s, %(rank)s, %(spec)s::jsonb, %(size)s, %(workspace)s, %(is_serial)s,
    %(step)s, %(state)s)
  ON CONFLICT (requested_by, key) DO NOTHING RETURNING id, state, generation, created_at),
{_add_parts},
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, after, actor, reason)
  SELECT 'create', %(pool)s, id, generation, state, %(actor)s, %(reason)s FROM c)
SELECT id, state, generation, created_at FROM c

-- hand_over: binds the claim to exactly these slots in this order (several slots, a run, a named slot, a node by selector). A slot that
-- is no longer free fails the statement with BR002, and the caller searches again. The rows are the slots in this order.
-- @not_null bound_at
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET generation = g.n, {_bound} FROM g
  WHERE id = %(claim)s AND state = 'waiting' AND size = cardinality(%(slots)s::bigint[])
    AND NOT EXISTS (
      SELECT FROM slots_slot s JOIN pools_pool p ON p.id = s.pool_id
      WHERE s.id = ANY (%(slots)s::bigint[]) AND (p.state <> 'active' OR p.paused_until IS NOT NULL OR p.frozen_until IS NOT NULL))
  RETURNING id, generation, bound_at),
s AS (
  UPDATE slots_slot SET state = 'held', claim_id = c.id, ordinal = x.n - 1, generation = c.generation, drain_until = NULL, due_at = NULL,
    changed_at = now()
  FROM c, unnest(%(slots)s::bigint[]) WITH ORDINALITY AS x(id, n)
  WHERE slots_slot.id = x.id AND slots_slot.claim_id IS NULL
  RETURNING slots_slot.id, pool_id, member_id, claim_id, slots_slot.generation, ordinal, lane, number),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'bind', pool_id, member_id, id, claim_id, generation, 'waiting', 'bound', %(actor)s, %(reason)s FROM s),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT p.queue, 'member:' || member_id, 'sync', pool_id, member_id, claim_id, generation
  FROM s JOIN pools_pool p ON p.id = s.pool_id WHERE p.queue <> '')
SELECT s.id, s.generation, c.bound_at, s.pool_id, s.member_id, m.name AS member, m.labels::text AS labels, m.addresses::text AS addresses,
  s.lane, s.number
FROM s JOIN c ON c.id = s.claim_id JOIN pools_member m ON m.id = s.member_id ORDER BY s.ordinal

-- give_back: release, finish, expire, lose, requeue or park: the holder (claim and generation) loses all slots of the claim. A slot
-- drains if its provider has work to clean up; other slots are free at once, and slots on a lost member retire. `is_clean`: nothing is
-- left outside. `rank` moves the claim in its queue (its own rank is kept for the next plan). `step` = plan removes the approval.
-- `by_holder`: only the agent releases a claim with a task. No row: an old generation, or the claim holds nothing.
WITH told AS MATERIALIZED (
  SELECT id, CASE state WHEN 'bound' THEN 'held' ELSE 'reserved' END AS before FROM claims_claim
  WHERE id = %(claim)s AND generation = %(generation)s AND state IN ('bound', 'reserved')
    AND NOT (%(by_holder)s::bool AND step <> '' AND EXISTS (SELECT FROM claims_task t WHERE t.claim_id = claims_claim.id)) FOR NO KEY UPDATE),
c AS (
  UPDATE claims_claim SET state = %(to)s::varchar, outcome = %(outcome)s, named_generation = %(generation)s, changed_at = now(),
    expires_at = CASE WHEN %(to)s::varchar = 'parked' THEN coalesce(expires_at, now() + %(wait)s::interval) END,
    reserved_at = CASE WHEN %(to)s::varchar = 'parked' THEN coalesce(reserved_at, now()) END,
    is_seeking = %(to)s::varchar = 'parked' AND %(is_seeking)s::bool,
    due_at = CASE %(to)s::varchar WHEN 'parked' THEN now() WHEN 'blocked' THEN now() + nullif(%(wait)s::interval, '0') END,
    attempts = CASE WHEN %(rank)s::smallint IS NOT NULL OR %(step)s::varchar IS NOT NULL THEN attempts
                    WHEN %(to)s::varchar IN ('waiting', 'blocked') THEN attempts + 1
                    WHEN %(to)s::varchar = 'parked' THEN 0 ELSE attempts END,
    spec = CASE WHEN rank <> %(rank)s::smallint THEN spec || jsonb_build_object('rank', rank) ELSE spec END,
    rank = CASE WHEN %(step)s::varchar = 'plan' THEN coalesce((spec->>'rank')::smallint, rank) ELSE coalesce(%(rank)s::smallint, rank) END,
    step = coalesce(%(step)s::varchar, step), approved_plan_id = CASE WHEN %(step)s::varchar IS NULL THEN approved_plan_id END
  FROM told WHERE claims_claim.id = told.id AND generation = %(generation)s AND state IN ('bound', 'reserved')
  RETURNING claims_claim.id, before, workspace_id),
s AS (
  UPDATE slots_slot SET
    state = CASE WHEN member_id = %(lost_member)s THEN 'retired' WHEN p.queue = '' OR %(is_clean)s::bool THEN 'idle' ELSE 'draining' END,
    drain_until = CASE WHEN member_id IS DISTINCT FROM %(lost_member)s AND NOT %(is_clean)s::bool THEN {_drain} END,
    due_at = CASE WHEN member_id IS DISTINCT FROM %(lost_member)s AND NOT %(is_clean)s::bool THEN {_drain} END,
    claim_id = NULL, ordinal = NULL, last_claim_id = c.id, changed_at = now()
  FROM c, pools_pool p WHERE slots_slot.claim_id = c.id AND p.id = slots_slot.pool_id
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, c.id AS claim_id, slots_slot.generation, before, slots_slot.state, p.queue,
    workspace_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason, data)
  SELECT %(verb)s, pool_id, member_id, id, claim_id, generation, before, state, %(actor)s, %(reason)s, %(data)s::jsonb FROM s),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT queue, 'member:' || member_id, 'sync', pool_id, member_id, claim_id, generation FROM s WHERE state = 'draining')
SELECT id, pool_id, member_id, state, workspace_id FROM s

-- release_batch: releases many claims, each named with its generation. A claim with an old generation has no row.
WITH told AS MATERIALIZED (
  SELECT c.id, t.generation, CASE c.state WHEN 'bound' THEN 'held' ELSE 'reserved' END AS before
  FROM unnest(%(claims)s::bigint[], %(generations)s::bigint[]) AS t(id, generation)
  JOIN claims_claim c ON c.id = t.id WHERE c.generation = t.generation AND c.state IN ('bound', 'reserved')
    AND (c.step = '' OR NOT EXISTS (SELECT FROM claims_task k WHERE k.claim_id = c.id)) ORDER BY c.id FOR NO KEY UPDATE OF c),
c AS (
  UPDATE claims_claim SET state = 'ended', outcome = %(outcome)s, named_generation = told.generation, due_at = NULL, expires_at = NULL,
    reserved_at = NULL, is_seeking = false, changed_at = now()
  FROM told WHERE claims_claim.id = told.id AND claims_claim.generation = told.generation AND state IN ('bound', 'reserved')
  RETURNING claims_claim.id, before, workspace_id),
s AS (
  UPDATE slots_slot SET state = CASE WHEN p.queue = '' THEN 'idle' ELSE 'draining' END,
    drain_until = {_drain}, due_at = {_drain}, claim_id = NULL, ordinal = NULL, last_claim_id = c.id, changed_at = now()
  FROM c, pools_pool p WHERE slots_slot.claim_id = c.id AND p.id = slots_slot.pool_id
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, c.id AS claim_id, slots_slot.generation, before, slots_slot.state, p.queue,
    workspace_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'release', pool_id, member_id, id, claim_id, generation, before, state, %(actor)s FROM s),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT queue, 'member:' || member_id, 'sync', pool_id, member_id, claim_id, generation FROM s WHERE state = 'draining')
SELECT claim_id, id AS slot_id, pool_id, state, workspace_id FROM s

-- end_unheld: cancels, rejects or expires a claim without slots.
WITH c AS (
  UPDATE claims_claim SET state = 'ended', outcome = %(outcome)s, due_at = NULL, expires_at = NULL, reserved_at = NULL, is_seeking = false,
    changed_at = now()
  FROM (SELECT id, state AS before FROM claims_claim WHERE id = %(claim)s FOR NO KEY UPDATE) o
  WHERE claims_claim.id = o.id AND claims_claim.state IN ('waiting', 'blocked', 'parked')
  RETURNING claims_claim.id, pool_id, generation, o.before, workspace_id, step),
p AS (UPDATE claims_plan SET is_stale = true FROM c WHERE c.step <> '' AND claims_plan.claim_id = c.id AND NOT is_stale),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT %(verb)s, pool_id, id, generation, before, %(outcome)s, %(actor)s, %(reason)s FROM c)
SELECT id, workspace_id FROM c

-- shrink: size, ordinals and freed slots in one statement; the last ordinals are freed. The claim gets a new generation, because its
-- slots change, and the queue of its new size.
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET size = %(size)s, shape_id = coalesce(%(shape)s, shape_id), named_generation = %(generation)s, generation = g.n,
    changed_at = now() FROM g
  WHERE id = %(claim)s AND generation = %(generation)s AND state = 'bound' AND size > %(size)s RETURNING id, generation),
s AS (
  UPDATE slots_slot SET
    state = CASE WHEN ordinal < %(size)s THEN 'held' WHEN p.queue = '' THEN 'idle' ELSE 'draining' END,
    drain_until = CASE WHEN ordinal >= %(size)s THEN {_drain} END, due_at = CASE WHEN ordinal >= %(size)s THEN {_drain} END,
    claim_id = CASE WHEN ordinal < %(size)s THEN c.id END, ordinal = CASE WHEN ordinal < %(size)s THEN ordinal END,
    generation = CASE WHEN ordinal < %(size)s THEN c.generation ELSE slots_slot.generation END,
    last_claim_id = CASE WHEN ordinal < %(size)s THEN last_claim_id ELSE c.id END, changed_at = now()
  FROM c, pools_pool p WHERE slots_slot.claim_id = c.id AND p.id = slots_slot.pool_id
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, c.id AS claim_id, slots_slot.generation, slots_slot.state, p.queue),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'shrink', pool_id, member_id, id, claim_id, generation, 'held', state, %(actor)s, %(reason)s FROM s WHERE state <> 'held'),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT queue, 'member:' || member_id, 'sync', pool_id, member_id, claim_id, generation FROM s WHERE state = 'draining')
SELECT id, state, (SELECT generation FROM c) AS generation FROM s

-- reserve: the plan is stored and the slot waits for the approval. The generation of the agent ends. The finalizer checks the claim at
-- once and sets the time of its next check: notice, end of the hold, deadline.
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET state = 'reserved', named_generation = %(generation)s, generation = g.n, attempts = 0, notified_at = NULL,
    expires_at = now() + %(ttl)s::interval, reserved_at = now(), due_at = now(), changed_at = now()
  FROM g WHERE id = %(claim)s AND generation = %(generation)s AND state = 'bound' AND step = 'plan' RETURNING id, generation),
s AS (
  UPDATE slots_slot SET state = 'reserved', generation = c.generation, changed_at = now() FROM c WHERE slots_slot.claim_id = c.id
  RETURNING slots_slot.id, pool_id, member_id, slots_slot.generation, claim_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'reserve', pool_id, member_id, id, claim_id, generation, 'held', 'reserved', %(actor)s FROM s)
SELECT id, generation FROM s

-- resume: approved in time: the apply runs in the reserved slot.
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET step = 'apply', approved_plan_id = %(plan)s, named_generation = %(generation)s, generation = g.n,
    expires_at = NULL, reserved_at = NULL, {_bound}
  FROM g WHERE id = %(claim)s AND generation = %(generation)s AND state = 'reserved' AND expires_at > now() RETURNING id, generation),
s AS (
  UPDATE slots_slot SET state = 'held', generation = c.generation, changed_at = now() FROM c WHERE slots_slot.claim_id = c.id
  RETURNING slots_slot.id, pool_id, member_id, slots_slot.generation, claim_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'approve', pool_id, member_id, id, claim_id, generation, 'reserved', 'held', %(actor)s, %(reason)s FROM s)
SELECT id, generation FROM s

-- resume_planning: the claim plans again in its reserved slot.
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET named_generation = %(generation)s, generation = g.n, expires_at = NULL, reserved_at = NULL, {_bound}
  FROM g WHERE id = %(claim)s AND generation = %(generation)s AND state = 'reserved' AND step = 'plan' RETURNING id, generation),
p AS (UPDATE claims_plan SET is_stale = true FROM c WHERE claims_plan.claim_id = c.id AND NOT is_stale),
s AS (
  UPDATE slots_slot SET state = 'held', generation = c.generation, changed_at = now() FROM c WHERE slots_slot.claim_id = c.id
  RETURNING slots_slot.id, pool_id, member_id, slots_slot.generation, claim_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'plan_again', pool_id, member_id, id, claim_id, generation, 'reserved', 'held', %(actor)s, %(reason)s FROM s)
SELECT id, generation FROM s

-- unpark: approved without a slot: the claim goes to the head of its queue. Its own rank is kept for the next plan.
WITH c AS (
  UPDATE claims_claim SET state = 'waiting', step = 'apply', approved_plan_id = %(plan)s, expires_at = NULL, reserved_at = NULL,
    is_seeking = false, due_at = NULL, changed_at = now(), rank = 0,
    spec = CASE WHEN rank > 0 THEN spec || jsonb_build_object('rank', rank) ELSE spec END
  WHERE id = %(claim)s AND generation = %(generation)s AND state = 'parked' AND expires_at > now() RETURNING id, pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'approve', pool_id, id, generation, 'parked', 'waiting', %(actor)s, %(reason)s FROM c)
SELECT id FROM c

-- plan_anew: a claim without a slot plans again, queued with its own rank. A blocked claim stays blocked.
WITH c AS (
  UPDATE claims_claim SET state = CASE claims_claim.state WHEN 'parked' THEN 'waiting' ELSE claims_claim.state END, step = 'plan',
    approved_plan_id = NULL, expires_at = NULL, reserved_at = NULL, is_seeking = false, attempts = 0,
    due_at = CASE WHEN claims_claim.state = 'blocked' THEN due_at END, rank = coalesce((spec->>'rank')::smallint, rank), changed_at = now()
  FROM (SELECT id, state AS before FROM claims_claim WHERE id = %(claim)s FOR NO KEY UPDATE) o
  WHERE claims_claim.id = o.id AND generation = %(generation)s
    AND (claims_claim.state = 'parked' OR claims_claim.state IN ('waiting', 'blocked') AND step = 'apply')
  RETURNING claims_claim.id, pool_id, generation, o.before, claims_claim.state),
p AS (UPDATE claims_plan SET is_stale = true FROM c WHERE claims_plan.claim_id = c.id AND NOT is_stale),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'plan_again', pool_id, id, generation, before, state, %(actor)s, %(reason)s FROM c)
SELECT id, state FROM c

-- block_unparked: blocks a queued claim of a locked workspace. Runs after lock_workspace_of or share_workspace_of, in the same
-- transaction.
WITH c AS (
  UPDATE claims_claim SET state = 'blocked', changed_at = now() WHERE id = %(claim)s AND state = 'waiting' RETURNING id, pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'block', pool_id, id, generation, 'waiting', 'blocked', %(actor)s, %(reason)s FROM c)
SELECT id FROM c

-- reserve_again: reserves a slot for a parked claim, approved or not. Its deadline does not change. No row: no slot is free, or another
-- transaction was faster. `but`: a member that the claim must leave.
WITH line AS MATERIALIZED (
  SELECT id FROM claims_claim WHERE id = %(claim)s AND generation = %(generation)s AND state = 'parked' AND expires_at > now() FOR NO KEY UPDATE),
free AS MATERIALIZED (
  SELECT id, member_id FROM slots_slot WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open AND {_willing} AND EXISTS (SELECT FROM line)
    AND member_id IS DISTINCT FROM %(but)s::bigint
  ORDER BY rank, number LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED),
{_reserved_again}

-- reserve_near: reserve_again on one member, where the claim was before.
WITH line AS MATERIALIZED (
  SELECT id FROM claims_claim WHERE id = %(claim)s AND generation = %(generation)s AND state = 'parked' AND expires_at > now() FOR NO KEY UPDATE),
free AS MATERIALIZED (
  SELECT id, member_id FROM slots_slot
  WHERE member_id = %(member)s AND pool_id = %(pool)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open AND {_willing} AND EXISTS (SELECT FROM line)
  ORDER BY array_position(%(lanes)s::varchar[], lane), number LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED),
{_reserved_again}

-- _reserved_again: the parked claim (CTE `line`) meets the slot (CTE `free`).
pair AS MATERIALIZED (
  SELECT line.id AS claim_id, free.id AS slot_id, member_id, nextval('generation') AS generation FROM line, free),
s AS (
  UPDATE slots_slot SET state = 'reserved', claim_id = pair.claim_id, ordinal = 0, generation = pair.generation, changed_at = now()
  FROM pair WHERE slots_slot.id = pair.slot_id),
c AS (
  UPDATE claims_claim SET state = 'reserved', named_generation = %(generation)s, generation = pair.generation, is_seeking = false,
    due_at = now(), changed_at = now()
  FROM pair WHERE claims_claim.id = pair.claim_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor)
  SELECT 'reserve_again', %(pool)s, member_id, slot_id, claim_id, generation, 'parked', 'reserved', %(actor)s FROM pair)
SELECT claim_id, slot_id, member_id, generation FROM pair

-- bind_near: binds an approved claim to a slot of the member that stores its plan, if one is free.
WITH line AS MATERIALIZED (
  SELECT id FROM claims_claim WHERE id = %(claim)s AND state = 'waiting' AND step = 'apply' AND size = 1 FOR NO KEY UPDATE SKIP LOCKED),
free AS MATERIALIZED (
  SELECT id, member_id FROM slots_slot
  WHERE member_id = %(member)s AND pool_id = %(pool)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open AND {_willing} AND EXISTS (SELECT FROM line)
  ORDER BY array_position(%(lanes)s::varchar[], lane), number LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED),
pair AS MATERIALIZED (
  SELECT line.id AS claim_id, free.id AS slot_id, member_id, nextval('generation') AS generation FROM line, free),
{_bind_pairs}

-- expire: races with resume. No task runs in a reserved slot, so the slot is idle at once for every provider.
WITH c AS (
  UPDATE claims_claim SET state = 'ended', outcome = 'expired', named_generation = generation, due_at = NULL, expires_at = NULL,
    reserved_at = NULL, changed_at = now()
  WHERE id = %(claim)s AND state = 'reserved' AND expires_at <= now() RETURNING id, generation, workspace_id),
p AS (UPDATE claims_plan SET is_stale = true FROM c WHERE claims_plan.claim_id = c.id AND NOT is_stale),
s AS (
  UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL, last_claim_id = c.id, changed_at = now()
  FROM c WHERE slots_slot.claim_id = c.id
  RETURNING slots_slot.id, pool_id, member_id, c.id AS claim_id, slots_slot.generation, state, workspace_id),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason)
  SELECT 'expire', pool_id, member_id, id, claim_id, generation, 'reserved', 'idle', 'finalize', 'not approved or rejected in time' FROM s)
SELECT id, state, workspace_id FROM s

-- move: migration, or replacement of lost slots. The claim holds the targets from now on. The slots that it leaves drain, and may be
-- taken back until they are idle. No row: an old generation, or a target's pool is paused.
WITH g AS MATERIALIZED (SELECT nextval('generation') AS n),
c AS (
  UPDATE claims_claim SET named_generation = %(generation)s, generation = g.n, changed_at = now() FROM g
  WHERE id = %(claim)s AND generation = %(generation)s AND state = 'bound'
    AND NOT EXISTS (
      SELECT FROM slots_slot s JOIN pools_pool p ON p.id = s.pool_id
      WHERE s.id = ANY (%(targets)s::bigint[]) AND (p.state <> 'active' OR p.paused_until IS NOT NULL OR p.frozen_until IS NOT NULL))
  RETURNING id, generation),
old AS (
  UPDATE slots_slot SET state = CASE WHEN member_id = %(lost_member)s THEN 'retired' WHEN p.queue = '' THEN 'idle' ELSE 'draining' END,
    drain_until = CASE WHEN member_id IS DISTINCT FROM %(lost_member)s THEN {_drain} END,
    due_at = CASE WHEN member_id IS DISTINCT FROM %(lost_member)s AND p.queue <> '' THEN now() + interval '15 s' END,
    claim_id = NULL, ordinal = NULL, last_claim_id = c.id, changed_at = now()
  FROM c, pools_pool p, unnest(%(ordinals)s::smallint[], %(targets)s::bigint[]) AS x(ordinal, target)
  WHERE slots_slot.claim_id = c.id AND slots_slot.ordinal = x.ordinal AND p.id = slots_slot.pool_id
  RETURNING slots_slot.id, slots_slot.pool_id, member_id, slots_slot.state, x.ordinal, x.target),
new AS (
  UPDATE slots_slot SET state = 'held', claim_id = c.id, ordinal = old.ordinal, generation = c.generation, drain_until = NULL, due_at = NULL,
    changed_at = now()
  FROM c, old WHERE slots_slot.id = old.target AND slots_slot.claim_id IS NULL
  RETURNING slots_slot.id, slots_slot.pool_id, slots_slot.member_id, slots_slot.state),
kept AS (
  UPDATE slots_slot SET generation = c.generation FROM c
  WHERE slots_slot.claim_id = c.id AND NOT slots_slot.ordinal = ANY (%(ordinals)s::smallint[])),
moved AS (
  SELECT id, pool_id, member_id, state, 'move' AS verb FROM new UNION ALL SELECT id, pool_id, member_id, state, 'leave' AS verb FROM old),
e AS (
  INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, after, actor, reason)
  SELECT verb, pool_id, member_id, m.id, c.id, c.generation, state, %(actor)s, %(reason)s FROM moved m, c),
o AS (
  INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation)
  SELECT DISTINCT p.queue, 'member:' || member_id, 'sync', pool_id, member_id, c.id, c.generation
  FROM c, moved JOIN pools_pool p ON p.id = pool_id WHERE moved.state <> 'retired' AND p.queue <> '')
SELECT new.id, c.generation FROM new, c

-- current_generation$: the generation under which a hold goes on since an evacuation has moved its claim. No row: it has not moved in this
-- generation. A later hold has another generation, so a call with this one then changes nothing.
SELECT current FROM slots_departure WHERE generation = %(generation)s AND claim_id = %(claim)s

-- lost_places: the slots that a claim has on a lost member, and the conditions for their replacements.
-- @not_null ordinal
SELECT s.ordinal, s.pool_id, c.size, sh.pools, sh.kind, sh.terms::text AS terms
FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id CROSS JOIN LATERAL (
  SELECT ordinal, pool_id FROM slots_slot WHERE claim_id = c.id AND member_id = %(member)s OFFSET 0) s
WHERE c.id = %(claim)s ORDER BY s.ordinal

-- earlier_claim$: the last claim with which the owner of this claim held one of the free slots of a lane.
SELECT s.last_claim_id AS id FROM claims_claim c CROSS JOIN LATERAL (
  SELECT last_claim_id, generation FROM slots_slot WHERE pool_id = %(pool)s AND lane = %(lane)s AND state = 'idle' AND is_open OFFSET 0) s
CROSS JOIN LATERAL (SELECT owner, requested_by FROM claims_claim WHERE id = s.last_claim_id OFFSET 0) o
WHERE c.id = %(claim)s AND c.owner <> '' AND o.owner = c.owner AND o.requested_by = c.requested_by ORDER BY s.generation DESC LIMIT 1

-- prioritise: changes the rank of a waiting claim. Approved claims (rank 0) keep their rank.
WITH c AS (
  UPDATE claims_claim SET rank = %(rank)s, changed_at = now()
  WHERE id = %(claim)s AND state IN ('waiting', 'blocked') AND rank > 0 RETURNING id, pool_id, generation, state),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason, data)
  SELECT 'prioritise', pool_id, id, generation, state, state, %(actor)s, %(reason)s, jsonb_build_object('priority', 100 - %(rank)s::int) FROM c)
SELECT id FROM c

-- acknowledge^: the holder acknowledges its claim in time by the database's clock, even if the finalizer has not ended it yet. The
-- finalizer locks a claim before it ends it, so one of the two comes first. The next check is due at the limit of the heartbeat or of the
-- hold, if any.
UPDATE claims_claim SET acknowledged_at = now(), changed_at = now(),
  due_at = least(now() + make_interval(secs => (spec->>'heartbeat')::float8), bound_at + make_interval(secs => (spec->>'hold')::float8))
WHERE id = %(claim)s AND generation = %(generation)s AND state = 'bound' AND acknowledged_at IS NULL
  AND (spec->>'acknowledge' IS NULL OR bound_at + make_interval(secs => (spec->>'acknowledge')::float8) > now())
RETURNING id, pool_id

-- keep: records a heartbeat of the holder in a narrow row. The share lock on the claim waits for a finalizer that has just found the
-- claim silent; the heartbeat then finds the claim ended.
INSERT INTO claims_lease (claim_id, generation, at)
SELECT id, generation, now() FROM claims_claim
WHERE id = %(claim)s AND generation = %(generation)s AND state IN ('bound', 'reserved') FOR KEY SHARE
ON CONFLICT (claim_id) DO UPDATE SET generation = EXCLUDED.generation, at = EXCLUDED.at RETURNING claim_id

-- lock_workspace: runs first wherever the next claim of a workspace is chosen (create, promote, lock), as a statement of its own, so that
-- the next statement sees the changes of the previous lock holder. Without it a promotion misses a lock that is being set, and two
-- promotions at once fail with 23505.
SELECT id, locked_at IS NOT NULL AS is_locked FROM claims_workspace WHERE id = %(workspace)s FOR NO KEY UPDATE

-- promote: queues the next serial claim of a workspace. Runs after lock_workspace, in a transaction of its own after the previous claim
-- has ended; the finalizer repeats it. A claim whose plan was lost keeps its turn during its back-off of at most a minute.
WITH next AS (
  SELECT c.id, c.due_at, c.pool_id, c.generation FROM claims_claim c JOIN claims_workspace w ON w.id = c.workspace_id
  WHERE w.id = %(workspace)s AND w.locked_at IS NULL AND c.is_serial AND c.state = 'blocked'
  ORDER BY c.rank, c.id LIMIT 1 FOR NO KEY UPDATE OF c),
c AS (
  UPDATE claims_claim SET state = 'waiting', due_at = NULL, changed_at = now() FROM next
  WHERE claims_claim.id = next.id AND (next.due_at IS NULL OR next.due_at <= now())
    AND NOT EXISTS (SELECT FROM claims_claim o WHERE o.workspace_id = %(workspace)s AND o.is_serial
                    AND o.state IN ('waiting', 'bound', 'reserved', 'parked'))
  RETURNING claims_claim.id, claims_claim.pool_id, claims_claim.generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor)
  SELECT 'promote', pool_id, id, generation, 'blocked', 'waiting', %(actor)s FROM c)
SELECT id FROM c

-- free_blocked: queues the claims of a workspace that only its lock or a back-off has blocked. For serial claims see promote.
WITH due AS (
  SELECT c.id FROM claims_claim c JOIN claims_workspace w ON w.id = c.workspace_id
  WHERE c.workspace_id = %(workspace)s AND c.state = 'blocked' AND NOT c.is_serial AND w.locked_at IS NULL AND (c.due_at IS NULL OR c.due_at <= now())
  ORDER BY c.id LIMIT {n} FOR NO KEY UPDATE OF c SKIP LOCKED),
c AS (
  UPDATE claims_claim SET state = 'waiting', due_at = NULL, changed_at = now() FROM due WHERE claims_claim.id = due.id
  RETURNING claims_claim.id, pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor)
  SELECT 'unblock', pool_id, id, generation, 'blocked', 'waiting', %(actor)s FROM c)
SELECT id FROM c

-- free_after_back_off: queues one claim without workspace after its back-off.
WITH c AS (
  UPDATE claims_claim SET state = 'waiting', due_at = NULL, changed_at = now()
  WHERE id = %(claim)s AND state = 'blocked' AND workspace_id IS NULL AND due_at <= now() RETURNING id, pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor)
  SELECT 'unblock', pool_id, id, generation, 'blocked', 'waiting', %(actor)s FROM c)
SELECT id FROM c

-- block_waiting: blocks the queued claims of a locked workspace.
WITH due AS (
  SELECT id FROM claims_claim WHERE workspace_id = %(workspace)s AND state = 'waiting' ORDER BY id LIMIT {n} FOR NO KEY UPDATE),
c AS (
  UPDATE claims_claim SET state = 'blocked', changed_at = now() FROM due WHERE claims_claim.id = due.id
  RETURNING claims_claim.id, pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'block', pool_id, id, generation, 'waiting', 'blocked', %(actor)s, %(reason)s FROM c)
SELECT id FROM c

-- overtaken: the first claims of queues that come before this claim and could use some of these slots, with the number of those slots. As
-- in _rivals, the recursion hops between queues with waiting claims, then adds the queues that name one of the pools after their first.
WITH RECURSIVE found AS MATERIALIZED (
  SELECT s.pool_id, p.name, s.lane, m.labels, count(*) AS n
  FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = s.pool_id
  WHERE s.id = ANY (%(slots)s::bigint[]) GROUP BY s.pool_id, p.name, s.lane, m.id),
self AS MATERIALIZED (SELECT id, rank FROM claims_claim WHERE id = %(claim)s),
w AS (
  SELECT f.pool_id, f.rank, f.shape_id FROM self, (SELECT DISTINCT pool_id FROM found) p, LATERAL (
    SELECT pool_id, rank, shape_id FROM claims_claim WHERE pool_id = p.pool_id AND state = 'waiting' AND rank <= self.rank
    ORDER BY rank, shape_id LIMIT 1) f
  UNION ALL
  SELECT n.pool_id, n.rank, n.shape_id FROM w, self, LATERAL (
    SELECT pool_id, rank, shape_id FROM claims_claim
    WHERE pool_id = w.pool_id AND state = 'waiting' AND rank <= self.rank AND (rank, shape_id) > (w.rank, w.shape_id)
    ORDER BY rank, shape_id LIMIT 1) n),
lines AS (SELECT shape_id FROM w UNION SELECT id FROM claims_shape WHERE pools[2:16] && ARRAY(SELECT name FROM found)::varchar[])
SELECT head.id AS claim, head.size, head.passed, head.waited, sum(found.n)::int AS n
FROM lines, self, LATERAL (SELECT pools, lanes, terms, wait_reason FROM claims_shape WHERE id = lines.shape_id OFFSET 0) sh,
LATERAL (
  SELECT id, size, passed, extract(epoch FROM now() - created_at)::float8 AS waited FROM claims_claim
  WHERE shape_id = lines.shape_id AND state = 'waiting' AND (rank, id) < (self.rank, self.id) ORDER BY rank, id LIMIT 1) head, found
WHERE sh.wait_reason->'passable' IS DISTINCT FROM 'true'::jsonb AND found.lane = ANY (sh.lanes) AND found.name = ANY (sh.pools)
  AND selects(coalesce(sh.terms->'selector', '{}'::jsonb), found.labels)
GROUP BY head.id, head.size, head.passed, head.waited ORDER BY head.id

-- pass_waiters: counts slots that are taken past each of these claims. One row for each claim that still waits and may be passed by this
-- number.
WITH t AS MATERIALIZED (
  SELECT c.id, t.n FROM unnest(%(claims)s::bigint[], %(counts)s::int[]) AS t(id, n), LATERAL (
    SELECT id FROM claims_claim WHERE id = t.id AND state = 'waiting' AND passed + t.n <= size FOR NO KEY UPDATE) c LIMIT 1000)
UPDATE claims_claim SET passed = passed + t.n FROM t WHERE claims_claim.id = t.id RETURNING claims_claim.id

-- find_on_one$: a member with k free slots of these lanes.
SELECT m.id AS member_id FROM pools_member m CROSS JOIN LATERAL (
  SELECT FROM slots_slot WHERE member_id = m.id AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open OFFSET {n} - 1 LIMIT 1) r
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND selects(%(labels)s::jsonb, m.labels) ORDER BY m.position, m.id LIMIT 1

-- lock_on_one: the k of them that few kinds of claims accept, lowest numbers first.
SELECT id, member_id, number FROM slots_slot
WHERE member_id = %(member)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open
ORDER BY array_position(%(lanes)s::varchar[], lane), number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_common_numbers: the lowest numbers that are free in every pool. The arrays have one item for each lane of each pool.
SELECT number FROM (
  SELECT s.number, s.pool_id FROM unnest(%(pools)s::bigint[], %(lanes)s::varchar[]) AS o(pool, lane)
  CROSS JOIN LATERAL (
    SELECT number, pool_id, member_id FROM slots_slot WHERE pool_id = o.pool AND lane = o.lane AND state = 'idle' AND is_open OFFSET 0) s
  JOIN pools_member m ON m.id = s.member_id AND selects(%(labels)s::jsonb, m.labels)
  GROUP BY s.number, s.pool_id) x
GROUP BY number HAVING count(*) = %(count)s ORDER BY number LIMIT {n}

-- find_common_run$: the lowest number at which a run of k free numbers starts in every pool, in each pool on one member.
SELECT number FROM (
  SELECT DISTINCT pool_id, number FROM (
    SELECT s.pool_id, s.number, lead(s.number, {n} - 1) OVER (PARTITION BY s.member_id, s.lane ORDER BY s.number) AS last
    FROM unnest(%(pools)s::bigint[], %(lanes)s::varchar[]) AS o(pool, lane)
    CROSS JOIN LATERAL (
      SELECT number, lane, pool_id, member_id FROM slots_slot WHERE pool_id = o.pool AND lane = o.lane AND state = 'idle' AND is_open OFFSET 0) s
    JOIN pools_member m ON m.id = s.member_id AND selects(%(labels)s::jsonb, m.labels)) w
  WHERE last = number + ({n} - 1) * %(step)s::int) x
GROUP BY number HAVING count(*) = %(count)s ORDER BY number LIMIT 1

-- find_run_from^: a member of the pool with a run of k free numbers from this number.
SELECT s.member_id, s.lane FROM slots_slot s JOIN pools_member m ON m.id = s.member_id AND selects(%(labels)s::jsonb, m.labels)
WHERE s.pool_id = %(pool)s AND s.lane = ANY (%(lanes)s::varchar[]) AND s.state = 'idle' AND s.is_open
  AND s.number BETWEEN %(number)s::int AND %(number)s::int + ({n} - 1) * %(step)s::int
GROUP BY s.member_id, s.lane HAVING count(*) = {n} ORDER BY min(s.rank), s.member_id LIMIT 1

-- lock_common_number^: locks this number in one pool.
SELECT s.id, s.member_id, s.number FROM slots_slot s JOIN pools_member m ON m.id = s.member_id AND selects(%(labels)s::jsonb, m.labels)
WHERE s.pool_id = %(pool)s AND s.lane = ANY (%(lanes)s::varchar[]) AND s.number = %(number)s AND s.state = 'idle' AND s.is_open
ORDER BY array_position(%(lanes)s::varchar[], s.lane), s.rank LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED

-- place_in_queue$: the number of claims ahead of a claim.
SELECT count(*) FROM claims_claim WHERE shape_id = ANY (%(rivals)s::bigint[]) AND state = 'waiting' AND (rank, id) < (%(rank)s, %(claim)s)

-- request_scale$: compare and set, in a transaction of its own, after the failed bind has committed. A row: this call has set the request
-- and wakes the scaler.
UPDATE pools_pool SET scale_requested_at = CASE WHEN absorb_until > now() THEN NULL ELSE now() END, absorb_until = NULL
WHERE id = %(pool)s AND scale_requested_at IS NULL RETURNING scale_requested_at IS NOT NULL AS won

-- queues_with_work: every queue with a waiting claim and work: a slot that it accepts is free (also in another of its pools, where later
-- claims may pass it), or it was not tried for a while or since its pool has changed. Hops from queue to queue, whatever their length.
-- LIMIT 1 and OFFSET 0: otherwise it reads all free slots of the pool, once for each use of free_lanes.
WITH RECURSIVE l AS (
  (SELECT shape_id FROM claims_claim WHERE state = 'waiting' ORDER BY shape_id LIMIT 1)
  UNION ALL
  SELECT (SELECT shape_id FROM claims_claim WHERE state = 'waiting' AND shape_id > l.shape_id ORDER BY shape_id LIMIT 1)
  FROM l WHERE l.shape_id IS NOT NULL)
SELECT sh.id AS shape, sh.pools, sh.kind, sh.lanes, sh.size, sh.terms::text AS terms, sh.is_simple, sh.wait_reason::text AS wait_reason,
  extract(epoch FROM now() - sh.tried_at)::float8 AS tried, head.id AS claim, head.rank, head.pool_id, head.size AS total, head.passed,
  extract(epoch FROM now() - head.created_at)::float8 AS waited, f.free_lanes
FROM l JOIN claims_shape sh ON sh.id = l.shape_id CROSS JOIN LATERAL (
  SELECT id, rank, pool_id, size, passed, created_at FROM claims_claim WHERE shape_id = l.shape_id AND state = 'waiting' ORDER BY rank, id LIMIT 1) head
CROSS JOIN LATERAL (
  SELECT ARRAY(
    SELECT lane FROM unnest(sh.lanes) AS a(lane), LATERAL (
      SELECT FROM slots_slot WHERE pool_id = head.pool_id AND lane = a.lane AND state = 'idle' AND is_open LIMIT 1) free) AS free_lanes
  OFFSET 0) f
WHERE l.shape_id IS NOT NULL AND (
  f.free_lanes <> '{}' OR head.pool_id IS NULL OR sh.tried_at IS NULL OR sh.tried_at < now() - make_interval(secs => %(stale)s)
  OR sh.tried_at < (SELECT changed_at FROM pools_pool WHERE id = head.pool_id)
  OR cardinality(sh.pools) > 1 AND EXISTS (
    SELECT FROM pools_pool p, LATERAL (
      SELECT FROM slots_slot WHERE pool_id = p.id AND lane = ANY (sh.lanes) AND state = 'idle' AND is_open LIMIT 1) free
    WHERE p.name = ANY (sh.pools[2:16]) AND NOT (p.state = 'gone')))

-- write_reasons: writes why these queues wait. Skips rows that another allocator has locked, which writes the same reasons.
WITH told AS MATERIALIZED (
  SELECT sh.id, t.reason, t.lanes FROM unnest(%(shapes)s::bigint[], %(reasons)s::jsonb[], %(lanes)s::jsonb[]) AS t(id, reason, lanes)
  JOIN claims_shape sh ON sh.id = t.id ORDER BY sh.id FOR NO KEY UPDATE OF sh SKIP LOCKED)
UPDATE claims_shape SET wait_reason = told.reason, tried_at = now(), lanes = ARRAY(SELECT jsonb_array_elements_text(told.lanes))
FROM told WHERE claims_shape.id = told.id

-- pool_state^: facts about a pool that are cheap to read.
SELECT p.id, p.name, p.state, coalesce(p.paused_until, p.frozen_until) IS NOT NULL AS is_paused, coalesce(p.paused_until, p.frozen_until) AS paused_until,
  CASE WHEN p.paused_until IS NULL THEN p.freeze_reason ELSE p.pause_reason END AS pause_reason, p.scale_requested_at IS NOT NULL AS is_asked,
  EXISTS (SELECT FROM pools_member m WHERE m.pool_id = p.id AND m.state NOT IN ('deleting', 'gone')) AS has_member,
  EXISTS (SELECT FROM pools_member m WHERE m.pool_id = p.id AND m.state = 'ready' AND NOT m.is_cordoned AND NOT m.is_leaving) AS is_any_willing
FROM pools_pool p WHERE p.id = %(pool)s

-- read_limits^: the columns that the limits of an active pool's members depend on (claims.allocation.member_limits).
SELECT p.id, p.provider, p.min_members, p.max_members,
  CASE WHEN p.pin_until IS NULL OR p.pin_until > now() THEN p.pin_count END AS pin_count, p.pin_reason,
  CASE WHEN p.paused_until > now() THEN coalesce(nullif(p.pause_reason, ''), 'the pool is paused') END AS paused,
  CASE WHEN p.scaling_paused_until > now() THEN coalesce(nullif(p.scaling_pause_reason, ''), 'no reason was given') END AS scaling_paused,
  coalesce(p.unfrozen_until > now(), false) AS is_unfrozen, clock_timestamp() AS moment
FROM pools_pool p WHERE p.id = %(pool)s AND p.state = 'active'

-- label_states^: the same facts for members with labels.
SELECT EXISTS (SELECT FROM pools_member m WHERE m.pool_id = %(pool)s AND m.state NOT IN ('deleting', 'gone') AND selects(%(labels)s::jsonb, m.labels)) AS has_labels,
  EXISTS (SELECT FROM pools_member m WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND NOT m.is_leaving
          AND selects(%(labels)s::jsonb, m.labels)) AS is_labelled_willing

-- is_any_free$: whether a slot of one of these lanes is free.
SELECT EXISTS (SELECT FROM slots_slot WHERE pool_id = %(pool)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open)

-- pools_by_name: the facts about pools that a claim needs.
SELECT id, name, revision, state, queue, provider, spec::text AS spec FROM pools_pool WHERE name = ANY (%(names)s::varchar[]) AND NOT (state = 'gone')

-- own_specs: the own specs of the members of a pool, with their numbers.
SELECT spec::text AS spec, count(*) AS count FROM pools_member WHERE pool_id = %(pool)s AND state NOT IN ('deleting', 'gone') GROUP BY spec

-- shape_by_digest^: the queue of a request.
SELECT id, lanes FROM claims_shape WHERE digest = %(digest)s

-- add_shape$: creates a queue. No row: it exists.
INSERT INTO claims_shape (digest, pools, kind, lanes, size, terms, is_simple)
VALUES (%(digest)s, %(pools)s::varchar[], %(kind)s, %(lanes)s::varchar[], %(size)s, %(terms)s::jsonb, %(is_simple)s)
ON CONFLICT (digest) DO NOTHING RETURNING id

-- mend_shape: sets the lanes of a queue after a change of its pool's layout.
UPDATE claims_shape SET lanes = %(lanes)s::varchar[] WHERE id = %(shape)s AND lanes <> %(lanes)s::varchar[]

-- view_claims: claims as they are shown, with their slots.
SELECT c.id, c.pool_id, c.shape_id, sh.pools, sh.kind, sh.terms::text AS terms, c.size, sh.size AS asked, c.state, c.outcome, c.generation, c.owner, c.requested_by,
  c.rank, c.key, w.id AS workspace_id, w.name AS workspace, (SELECT name FROM pools_pool WHERE id = w.pool_id) AS workspace_pool, c.spec::text AS spec, c.step, c.is_serial, c.created_at, c.bound_at, c.acknowledged_at, c.expires_at,
  c.changed_at, c.body_digest,
  CASE WHEN c.state IN ('reserved', 'parked') THEN (
    SELECT json_build_object('plan', pl.id, 'digest', encode(pl.digest, 'hex'), 'summary', pl.summary, 'since', c.reserved_at,
      'needed', coalesce((po.spec #>> '{approval,needed}')::int, 1), 'given', 0)::text
    FROM claims_plan pl LEFT JOIN pools_pool po ON po.id = c.pool_id WHERE pl.claim_id = c.id AND NOT pl.is_stale) END AS approval,
  (SELECT json_agg(json_build_array(s.id, p.name, s.member_id, m.name, s.lane, s.number, m.labels, s.state) ORDER BY s.ordinal)::text
   FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = s.pool_id WHERE s.claim_id = c.id) AS slots
FROM unnest(%(claims)s::bigint[]) WITH ORDINALITY AS t(id, n) JOIN claims_claim c ON c.id = t.id JOIN claims_shape sh ON sh.id = c.shape_id
LEFT JOIN claims_workspace w ON w.id = c.workspace_id ORDER BY t.n

-- claim_by_key^: the claim that a key has created before.
SELECT id, body_digest FROM claims_claim WHERE requested_by = %(requested_by)s AND key = %(key)s

-- lock_pools: locks the pools in which a claim is created. A deletion of a pool and these locks exclude each other.
SELECT id, revision, state FROM pools_pool WHERE id = ANY (%(pools)s::bigint[]) ORDER BY id FOR KEY SHARE

-- pool_name$: the name of a pool, also of a deleted one.
SELECT name FROM pools_pool WHERE id = %(pool)s

-- add_share: lets a pool use a workspace of another pool, or decides an open request for that. No row: it is allowed already.
INSERT INTO claims_workspaceshare AS s (workspace_id, pool_id, allowed_at, allowed_by, reason)
VALUES (%(workspace)s, %(pool)s, now(), %(by)s, %(reason)s)
ON CONFLICT (workspace_id, pool_id) DO UPDATE SET allowed_at = now(), allowed_by = EXCLUDED.allowed_by, reason = EXCLUDED.reason
WHERE s.allowed_at IS NULL RETURNING id

-- drop_share: ends the use of a workspace by another pool.
DELETE FROM claims_workspaceshare WHERE workspace_id = %(workspace)s AND pool_id = %(pool)s RETURNING id

-- drop_unused_workspace: deletes a workspace without claims, lock and shares.
DELETE FROM claims_workspace w WHERE pool_id = %(pool)s AND name = %(name)s AND locked_at IS NULL
  AND NOT EXISTS (SELECT FROM claims_claim WHERE workspace_id = w.id) AND NOT EXISTS (SELECT FROM claims_workspaceshare WHERE workspace_id = w.id)
RETURNING id

-- find_workspace^: the workspace of a pool.
SELECT id, pool_id FROM claims_workspace WHERE pool_id = %(pool)s AND name = %(name)s

-- find_shared_workspace^: a workspace of another pool that this pool may use, or has used before and waits for an operator's decision.
SELECT w.id, w.pool_id, s.allowed_at IS NOT NULL AS is_allowed FROM claims_workspaceshare s JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.pool_id = %(pool)s AND w.name = %(name)s LIMIT 1 FOR KEY SHARE OF s

-- hold_share^: keeps the permission to use a workspace of another pool until this transaction ends. No row: there is no permission.
SELECT id FROM claims_workspaceshare WHERE workspace_id = %(workspace)s AND pool_id = %(pool)s AND allowed_at IS NOT NULL FOR KEY SHARE

-- adopt_workspace: the pool takes over a workspace of the deleted pool of the same name, or one without a pool. The lock of the workspace
-- is kept.
UPDATE claims_workspace w SET pool_id = %(pool)s WHERE w.id = (
  SELECT o.id FROM claims_workspace o LEFT JOIN pools_pool g ON g.id = o.pool_id
  WHERE o.name = %(name)s AND (o.pool_id IS NULL OR g.state = 'gone' AND g.name = (SELECT name FROM pools_pool WHERE id = %(pool)s))
  ORDER BY o.pool_id DESC NULLS LAST LIMIT 1 FOR UPDATE OF o)
  AND NOT EXISTS (SELECT FROM claims_workspace WHERE pool_id = %(pool)s AND name = %(name)s) RETURNING w.id

-- add_workspace: creates a workspace when a claim of the pool names it for the first time.
INSERT INTO claims_workspace (pool_id, name) VALUES (%(pool)s, %(name)s) ON CONFLICT (pool_id, name) DO NOTHING

-- share_workspace_of^: locks the workspace of a claim before the claim itself: its lock cannot be set before this transaction ends.
SELECT w.id, w.name, w.locked_at IS NOT NULL AS is_locked, w.locked_by, w.lock_reason FROM claims_workspace w
WHERE w.id = (SELECT workspace_id FROM claims_claim WHERE id = %(claim)s) FOR SHARE

-- share_workspace^: reads the lock of a workspace. The lock cannot be set before this transaction ends.
SELECT id, locked_at IS NOT NULL AS is_locked, locked_by, lock_reason FROM claims_workspace WHERE id = %(workspace)s FOR KEY SHARE

-- hold_workspace^: locks a workspace for a new serial claim: one at a time.
SELECT id, locked_at IS NOT NULL AS is_locked, locked_by, lock_reason FROM claims_workspace WHERE id = %(workspace)s FOR NO KEY UPDATE

-- lock_workspace_row^: locks a workspace before its lock changes: no claim is added meanwhile.
SELECT id, name, pool_id, locked_at IS NOT NULL AS is_locked, locked_by, lock_reason, lost_claim_id FROM claims_workspace
WHERE id = %(workspace)s FOR UPDATE

-- set_workspace_lock: sets the lock of a workspace with a user and a reason. An empty user removes the lock.
UPDATE claims_workspace SET locked_at = CASE WHEN %(by)s::varchar = '' THEN NULL ELSE now() END, locked_by = %(by)s, lock_reason = %(reason)s,
  lost_claim_id = CASE WHEN %(by)s::varchar <> '' THEN lost_claim_id END
WHERE id = %(workspace)s

-- set_lost_apply: locks the workspace of a lost apply, until a user records its outcome.
UPDATE claims_workspace SET lost_claim_id = %(claim)s, locked_by = CASE WHEN locked_at IS NULL THEN %(by)s ELSE locked_by END,
  lock_reason = CASE WHEN locked_at IS NULL THEN %(reason)s ELSE lock_reason END, locked_at = coalesce(locked_at, now())
WHERE id = %(workspace)s

-- serial_holder$: the serial claim under way in a workspace.
SELECT id FROM claims_claim WHERE workspace_id = %(workspace)s AND is_serial AND state IN ('waiting', 'bound', 'reserved', 'parked') LIMIT 1

-- workspaces_to_free: workspaces without lock in which a blocked claim may go: a claim that is not serial, or a serial claim while no
-- other serial claim is under way.
-- @not_null id
WITH RECURSIVE w AS (
  (SELECT workspace_id AS id FROM claims_claim WHERE state = 'blocked' AND workspace_id IS NOT NULL ORDER BY workspace_id LIMIT 1)
  UNION ALL
  SELECT (SELECT workspace_id FROM claims_claim WHERE state = 'blocked' AND workspace_id > w.id ORDER BY workspace_id LIMIT 1)
  FROM w WHERE w.id IS NOT NULL)
SELECT w.id FROM w JOIN claims_workspace k ON k.id = w.id
WHERE k.locked_at IS NULL AND (
  EXISTS (SELECT FROM claims_claim c WHERE c.workspace_id = w.id AND c.state = 'blocked' AND NOT c.is_serial AND (c.due_at IS NULL OR c.due_at <= now()) OFFSET 0)
  OR EXISTS (SELECT FROM claims_claim c WHERE c.workspace_id = w.id AND c.state = 'blocked' AND c.is_serial AND (c.due_at IS NULL OR c.due_at <= now()) OFFSET 0)
    AND NOT EXISTS (SELECT FROM claims_claim o WHERE o.workspace_id = w.id AND o.is_serial AND o.state IN ('waiting', 'bound', 'reserved', 'parked')))
LIMIT {n}

-- slot_place^: the pool and lane of a slot.
SELECT p.name AS pool, s.lane FROM slots_slot s JOIN pools_pool p ON p.id = s.pool_id WHERE s.id = %(slot)s AND NOT (p.state = 'gone')

-- rivals: the queues with waiting claims for slots of these lanes in one of these pools: by how many slots their first claims may still
-- be passed, and whether a claim that needs these labels finds only slots that they could take.
WITH RECURSIVE p AS (SELECT id FROM pools_pool WHERE name = ANY (%(pools)s::varchar[]) AND NOT (state = 'gone')),
w AS (
  SELECT f.pool_id, f.rank, f.shape_id FROM p, LATERAL (
    SELECT pool_id, rank, shape_id FROM claims_claim WHERE pool_id = p.id AND state = 'waiting' ORDER BY rank, shape_id LIMIT 1) f
  UNION ALL
  SELECT n.pool_id, n.rank, n.shape_id FROM w, LATERAL (
    SELECT pool_id, rank, shape_id FROM claims_claim
    WHERE pool_id = w.pool_id AND state = 'waiting' AND (rank, shape_id) > (w.rank, w.shape_id) ORDER BY rank, shape_id LIMIT 1) n),
found AS (
  SELECT shape_id FROM w UNION SELECT id FROM claims_shape WHERE pools[2:16] && %(pools)s::varchar[])
SELECT sh.id, head.id AS head, head.rank, head.size, head.passed, extract(epoch FROM now() - head.created_at)::float8 AS waited,
  NOT sh.is_simple AND sh.wait_reason->'passable' = 'false'::jsonb AND NOT EXISTS (
    SELECT FROM p, unnest(%(lanes)s::varchar[]) AS l(lane), LATERAL (
      SELECT s.id FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
      WHERE s.pool_id = p.id AND s.lane = l.lane AND s.state = 'idle' AND s.is_open AND selects(%(labels)s::jsonb, m.labels)
        AND NOT (l.lane = ANY (sh.lanes) AND selects(coalesce(sh.terms->'selector', '{}'::jsonb), m.labels)) LIMIT 1) other) AS holds_back
FROM found, LATERAL (SELECT * FROM claims_shape WHERE id = found.shape_id OFFSET 0) sh LEFT JOIN LATERAL (
  SELECT id, rank, size, passed, created_at FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT 1) head ON true
WHERE sh.lanes && %(lanes)s::varchar[]

-- count_places: slots of a pool by lane, state, and the state of their member.
SELECT s.lane, s.state, s.is_open, m.state AS member_state, m.is_cordoned OR m.is_leaving AS is_closing, count(*)::int AS n
FROM pools_member m JOIN slots_slot s ON s.member_id = m.id
WHERE m.pool_id = %(pool)s AND m.state <> 'gone' AND s.state <> 'retired' AND selects(%(labels)s::jsonb, m.labels) GROUP BY 1, 2, 3, 4, 5

-- unwilling_members: members with a free slot of the lanes that are offline, being created, cordoned or leaving.
SELECT m.name, m.state, m.is_cordoned, m.is_leaving FROM pools_member m
WHERE m.pool_id = %(pool)s AND (m.state = 'offline' OR m.state = 'creating' OR m.is_cordoned OR m.is_leaving) AND m.state NOT IN ('deleting', 'gone')
  AND selects(%(labels)s::jsonb, m.labels)
  AND EXISTS (SELECT FROM slots_slot WHERE member_id = m.id AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle')
ORDER BY m.position, m.id LIMIT {n}

-- holders: the claims that hold slots of these lanes, with their age and limit; the longest first.
SELECT c.id, c.state, c.step, extract(epoch FROM now() - c.bound_at)::float8 AS age, (c.spec->>'hold')::float8 AS hold,
  extract(epoch FROM now() - c.reserved_at)::float8 AS waited
FROM pools_member m JOIN slots_slot s ON s.member_id = m.id JOIN claims_claim c ON c.id = s.claim_id
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND s.is_open AND s.lane = ANY (%(lanes)s::varchar[]) AND s.state IN ('held', 'reserved')
  AND selects(%(labels)s::jsonb, m.labels)
ORDER BY c.bound_at LIMIT {n}

-- recent_holds: how long the last claims of a pool held their slots, from the last events of the pool.
SELECT extract(epoch FROM e.at - c.bound_at)::float8 AS seconds FROM (
  SELECT claim_id, at, before, after FROM kernel_event WHERE pool_id = %(pool)s ORDER BY id DESC LIMIT 2000) e
JOIN claims_claim c ON c.id = e.claim_id
WHERE e.before = 'held' AND e.after IN ('idle', 'draining') AND c.bound_at IS NOT NULL AND e.at > c.bound_at LIMIT {n}

-- longest_free_run^: the member with these labels that has the longest run of free numbers in the lanes, and its length.
SELECT member_id, max(length)::int AS length FROM (
  SELECT member_id, count(*) AS length FROM (
    SELECT member_id, number - %(step)s::int * row_number() OVER (PARTITION BY member_id ORDER BY number) AS island
    FROM slots_slot WHERE pool_id = %(pool)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open
      AND (%(labels)s::jsonb = '{}' OR member_id IN (SELECT id FROM pools_member WHERE pool_id = %(pool)s AND selects(%(labels)s::jsonb, labels)))) x
  GROUP BY member_id, island) y
GROUP BY member_id ORDER BY 2 DESC, 1 LIMIT 1

-- most_on_one^: the member with these labels that has the most free slots of these lanes.
SELECT member_id, count(*)::int AS length FROM slots_slot
WHERE pool_id = %(pool)s AND lane = ANY (%(lanes)s::varchar[]) AND state = 'idle' AND is_open
  AND (%(labels)s::jsonb = '{}' OR member_id IN (SELECT id FROM pools_member WHERE pool_id = %(pool)s AND selects(%(labels)s::jsonb, labels)))
GROUP BY member_id ORDER BY 2 DESC, 1 LIMIT 1

-- blocked_by: what a blocked claim waits for: the lock of its workspace, the serial claim under way there, the end of a back-off.
SELECT c.id, w.name, w.locked_at IS NOT NULL AS is_locked, w.locked_by, w.lock_reason, w.lost_claim_id,
  extract(epoch FROM c.due_at - now())::float8 AS due_in,
  o.id AS holder, o.state AS holder_state, o.step AS holder_step, o.pool_id AS holder_pool,
  extract(epoch FROM now() - o.bound_at)::float8 AS holder_age,
  (SELECT count(*) FROM claims_claim b WHERE b.workspace_id = c.workspace_id AND b.state = 'blocked' AND (b.rank, b.id) < (c.rank, c.id))::int AS ahead
FROM claims_claim c LEFT JOIN claims_workspace w ON w.id = c.workspace_id
LEFT JOIN LATERAL (
  SELECT id, state, step, pool_id, bound_at FROM claims_claim
  WHERE workspace_id = c.workspace_id AND is_serial AND c.is_serial AND state IN ('waiting', 'bound', 'reserved', 'parked') LIMIT 1) o ON true
WHERE c.id = ANY (%(claims)s::bigint[])

-- queue: waiting claims of a pool in the order of their turns. Reads only the first claims of each queue, so its cost grows with {n}
-- only.
SELECT x.id FROM claims_shape sh CROSS JOIN LATERAL (
  SELECT id, rank FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' ORDER BY rank, id LIMIT {n}) x
WHERE sh.pools @> ARRAY[%(pool_name)s]::varchar[] ORDER BY x.rank, x.id LIMIT {n}

-- queue_blocked: blocked claims of a pool.
SELECT c.id FROM claims_claim c JOIN claims_shape sh ON sh.id = c.shape_id
WHERE c.state = 'blocked' AND sh.pools @> ARRAY[%(pool_name)s]::varchar[] ORDER BY c.rank, c.id LIMIT {n}

-- count_queues: the number of waiting and blocked claims of each pool, and the oldest. Claims of missing pools count under NULL.
SELECT pool_id, count(*) FILTER (WHERE state = 'waiting')::int AS waiting, count(*) FILTER (WHERE state = 'blocked')::int AS blocked,
  min(created_at) AS oldest FROM claims_claim WHERE state = 'waiting' OR state = 'blocked' GROUP BY pool_id

-- measure_queues: the queue of every pool, also an empty one, for Prometheus. Claims of missing pools count under ''.
SELECT coalesce(p.name, '') AS pool, coalesce(q.waiting, 0)::int AS waiting, coalesce(q.blocked, 0)::int AS blocked,
  coalesce(extract(epoch FROM clock_timestamp() - q.oldest), 0)::float8 AS oldest
FROM (
  SELECT pool_id, count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'blocked') AS blocked,
    min(created_at) AS oldest FROM claims_claim WHERE state = 'waiting' OR state = 'blocked' GROUP BY pool_id) q
FULL JOIN (SELECT id, name FROM pools_pool WHERE state <> 'gone') p ON p.id = q.pool_id

-- member_name$: the name of a member.
SELECT name FROM pools_member WHERE id = %(member)s

-- lanes_of: the lanes that some queues accept.
SELECT id, lanes FROM claims_shape WHERE id = ANY (%(shapes)s::bigint[])

-- claims_on_member: the claims that hold slots of a member.
-- @not_null id
SELECT DISTINCT claim_id AS id FROM slots_slot WHERE member_id = %(member)s AND claim_id IS NOT NULL

-- count_workspaces: the claims under way in workspaces.
SELECT workspace_id AS id, count(*)::int AS live, (count(*) FILTER (WHERE state = 'blocked'))::int AS blocked,
  min(id) FILTER (WHERE is_serial AND state IN ('waiting', 'bound', 'reserved', 'parked')) AS running
FROM claims_claim WHERE workspace_id = ANY (%(workspaces)s::bigint[]) AND NOT (state = 'ended') GROUP BY workspace_id

-- live_of_pool: claims that hold slots of a pool or wait for it, also if they name it after another pool. After the deletion the name may
-- belong to a new pool.
-- @not_null id
SELECT id FROM ({_live}) x ORDER BY id LIMIT {n}

-- count_live$: the number of these claims.
SELECT count(*)::int FROM ({_live}) x

-- _live: each claim once.
SELECT s.claim_id AS id FROM pools_member m JOIN slots_slot s ON s.member_id = m.id WHERE m.pool_id = %(pool)s AND s.claim_id IS NOT NULL
UNION
SELECT c.id FROM pools_pool p JOIN claims_shape sh ON sh.pools @> ARRAY[p.name],
  LATERAL (SELECT id FROM claims_claim WHERE shape_id = sh.id AND state = 'waiting' OFFSET 0) c
WHERE p.id = %(pool)s AND p.state <> 'gone'
UNION
SELECT c.id FROM (SELECT id, shape_id FROM claims_claim WHERE state = 'blocked' OFFSET 0) c, LATERAL (
  SELECT FROM claims_shape sh JOIN pools_pool p ON sh.pools @> ARRAY[p.name]
  WHERE sh.id = c.shape_id AND p.id = %(pool)s AND p.state <> 'gone' OFFSET 0) sh
UNION
SELECT id FROM claims_claim WHERE pool_id = %(pool)s AND NOT (state = 'ended')

-- lock_claim^: locks a claim before a decision about it. `is_over`: its deadline has passed, even if the finalizer has not ended it yet.
SELECT id, pool_id, shape_id, state, outcome, generation, size, step, workspace_id, rank, spec::text AS spec, requested_by, attempts,
  approved_plan_id, expires_at, expires_at <= now() AS is_over, extract(epoch FROM now() - reserved_at)::float8 AS waited,
  step <> '' AND EXISTS (SELECT FROM claims_task WHERE claim_id = claims_claim.id) AS has_task
FROM claims_claim WHERE id = %(claim)s FOR NO KEY UPDATE

-- copy_shape$: creates the queue of the same request with another size.
INSERT INTO claims_shape (digest, pools, kind, lanes, size, terms, is_simple)
SELECT %(digest)s, pools, kind, lanes, %(size)s::smallint, %(terms)s::jsonb,
  %(size)s::smallint = 1 AND cardinality(pools) = 1 AND NOT %(terms)s::jsonb ? 'selector'
FROM claims_shape WHERE id = %(shape)s ON CONFLICT (digest) DO NOTHING RETURNING id

-- claims_by_keys: the claims that some keys have created before.
SELECT key, id, body_digest FROM claims_claim WHERE requested_by = %(requested_by)s AND key = ANY (%(keys)s::varchar[])

-- lock_workspace_of^: locks the workspace of a claim before the claim itself. The caller may lock the workspace next, so no claim is
-- added meanwhile.
SELECT w.id, w.name, w.pool_id, w.locked_at IS NOT NULL AS is_locked, w.lost_claim_id FROM claims_workspace w
WHERE w.id = (SELECT workspace_id FROM claims_claim WHERE id = %(claim)s) FOR UPDATE

-- holds_on$: whether a claim holds a slot of this member, the member is lost, and the claim was bound at least `grace` seconds ago. A
-- member that is back keeps its new claims, and cannot come back while one of its slots is held.
SELECT EXISTS (
  SELECT FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN claims_claim c ON c.id = s.claim_id
  WHERE s.claim_id = %(claim)s AND s.member_id = %(member)s AND m.lost_at IS NOT NULL
    AND coalesce(c.bound_at <= clock_timestamp() - make_interval(secs => %(grace)s::float8), true))

-- hold_pool: locks a pool for its deletion: a new claim in it waits, and then finds the pool closed.
SELECT id FROM pools_pool WHERE id = %(pool)s FOR UPDATE

-- adopt: the pool of a queue exists now: its claims get the lease limits of the pool, unless they have their own.
WITH line AS (
  SELECT id FROM claims_claim WHERE shape_id = %(shape)s AND state = 'waiting' AND pool_id IS NULL ORDER BY rank, id LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED),
p AS (SELECT id FROM pools_pool WHERE id = %(pool)s AND state IN ('pending', 'active') FOR KEY SHARE),
spec AS (SELECT c.id, %(lease)s::jsonb || c.spec AS spec FROM line JOIN claims_claim c USING (id)),
c AS (
  UPDATE claims_claim SET pool_id = p.id, changed_at = now(),
    spec = CASE WHEN least((spec.spec->>'acknowledge')::float8, (spec.spec->>'heartbeat')::float8, (spec.spec->>'hold')::float8) IS NULL THEN spec.spec
           ELSE spec.spec || jsonb_build_object('due_in',
             least((spec.spec->>'acknowledge')::float8, (spec.spec->>'heartbeat')::float8, (spec.spec->>'hold')::float8)) END
  FROM spec, p WHERE claims_claim.id = spec.id RETURNING claims_claim.id, claims_claim.pool_id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'adopt', pool_id, id, generation, 'waiting', 'waiting', %(actor)s, 'its pool is there now' FROM c)
SELECT id FROM c

-- disown: the pool of a queue is deleted; its claims wait for a new pool of this name.
WITH line AS (
  SELECT id FROM claims_claim WHERE shape_id = %(shape)s AND state = 'waiting' AND pool_id = %(pool)s ORDER BY rank, id LIMIT {n}
  FOR NO KEY UPDATE SKIP LOCKED),
c AS (
  UPDATE claims_claim SET pool_id = NULL, changed_at = now() FROM line WHERE claims_claim.id = line.id
  RETURNING claims_claim.id, generation),
e AS (
  INSERT INTO kernel_event (verb, pool_id, claim_id, generation, before, after, actor, reason)
  SELECT 'disown', %(pool)s, id, generation, 'waiting', 'waiting', %(actor)s, 'its pool is gone, it waits for another of this name' FROM c)
SELECT id FROM c

-- name_kind: sets the kind of a queue that named none: the only kind of its new pool.
UPDATE claims_shape SET kind = %(kind)s WHERE id = %(shape)s AND kind = ''

-- pools_by_id: the facts about pools that the allocator needs.
SELECT id, name, revision, state, queue, provider, spec::text AS spec FROM pools_pool WHERE id = ANY (%(pools)s::bigint[])

-- due_claims: claims that are due for a check, the longest overdue first.
SELECT id FROM claims_claim WHERE due_at <= now() ORDER BY due_at LIMIT {n}

-- lock_due_claim^: locks a due claim and reads it by the database's clock. A holder that acknowledges it at this moment waits or was
-- faster.
SELECT c.id, c.state, c.generation, c.spec::text AS spec, c.workspace_id, c.acknowledged_at IS NOT NULL AS is_acknowledged, c.step,
  extract(epoch FROM clock_timestamp() - c.bound_at)::float8 AS held, c.pool_id, c.notified_at IS NOT NULL AS is_notified, c.is_seeking,
  extract(epoch FROM c.expires_at - now())::float8 AS left, extract(epoch FROM now() - c.reserved_at)::float8 AS waited,
  c.step <> '' AND EXISTS (SELECT FROM claims_task WHERE claim_id = c.id) AS has_task
FROM claims_claim c WHERE c.id = %(claim)s AND c.due_at <= now() FOR UPDATE SKIP LOCKED

-- silence_of$: seconds since the last heartbeat of a claim. Runs after lock_due_claim as a statement of its own, because that statement
-- reads its snapshot before it has the lock and would miss a heartbeat in between. Heartbeats count from the bind on, also after a shrink has
-- changed the generation, because the holder is the same.
SELECT extract(epoch FROM clock_timestamp() - l.at)::float8 FROM claims_lease l JOIN claims_claim c ON c.id = l.claim_id
WHERE l.claim_id = %(claim)s AND l.at >= c.bound_at

-- postpone_claim: sets the time of the next check. NULL seconds: no check.
-- @nullable seconds
UPDATE claims_claim SET due_at = now() + make_interval(secs => %(seconds)s::float8) WHERE id = %(claim)s RETURNING id

-- pools_deleting: pools in deletion.
SELECT id FROM pools_pool WHERE state = 'deleting' ORDER BY id

-- old_claims: the next claims in the order of their ids, and which of them ended long enough ago to be deleted.
SELECT id, created_at < now() - make_interval(secs => %(days)s::float8 * 86400) AS is_past,
  state = 'ended' AND changed_at < now() - make_interval(secs => %(days)s::float8 * 86400)
    AND NOT EXISTS (SELECT FROM claims_workspace WHERE id = c.workspace_id AND lost_claim_id = c.id) AS is_old
FROM claims_claim c WHERE id > %(after)s ORDER BY id LIMIT {n}

-- delete_logs: deletes logs before their claims, some pieces at a time, since a log may have many.
DELETE FROM claims_logchunk WHERE (claim_id, generation, seq) IN (
  SELECT claim_id, generation, seq FROM claims_logchunk WHERE claim_id = ANY (%(claims)s::bigint[]) LIMIT {n}) RETURNING claim_id

-- delete_claims: deletes claims with their parts, the heartbeats of their holders and the rows of their tasks. Their files are orphans from
-- now on, and swept.
WITH l AS (DELETE FROM claims_lease WHERE claim_id = ANY (%(claims)s::bigint[])),
cp AS (DELETE FROM claims_claimpart WHERE claim_id = ANY (%(claims)s::bigint[])),
b AS (DELETE FROM claims_backendtarget WHERE claim_id = ANY (%(claims)s::bigint[])),
bc AS (DELETE FROM claims_backendconflict WHERE claim_id = ANY (%(claims)s::bigint[])),
d AS (DELETE FROM slots_departure WHERE claim_id = ANY (%(claims)s::bigint[])),
t AS (DELETE FROM claims_task WHERE claim_id = ANY (%(claims)s::bigint[])),
r AS (DELETE FROM claims_run WHERE claim_id = ANY (%(claims)s::bigint[])),
p AS (DELETE FROM claims_plan WHERE claim_id = ANY (%(claims)s::bigint[]) RETURNING id),
a AS (DELETE FROM claims_approval WHERE plan_id IN (SELECT id FROM p))
DELETE FROM claims_claim WHERE id = ANY (%(claims)s::bigint[]) AND state = 'ended' RETURNING id
