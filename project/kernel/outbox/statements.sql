-- add_operation$: writes a call to an outside system, in the transaction of the change that needs it.
INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation, body, due_at)
VALUES (%(queue)s, %(lane)s, %(kind)s, %(pool)s, %(member)s, %(claim)s, %(generation)s, %(body)s::jsonb, now() + make_interval(secs => %(delay)s))
RETURNING id

-- queues_due: queues with operations that have been due for so many seconds. The statement hops from queue to queue in the index, so the
-- length of a queue does not matter.
-- @not_null queue
WITH RECURSIVE q AS (
  (SELECT queue FROM kernel_operation WHERE done_at IS NULL ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT o.queue FROM kernel_operation o WHERE o.done_at IS NULL AND o.queue > q.queue ORDER BY o.queue LIMIT 1)
  FROM q WHERE q.queue IS NOT NULL)
SELECT queue FROM q WHERE EXISTS (
  SELECT FROM kernel_operation o WHERE o.queue = q.queue AND o.done_at IS NULL AND o.due_at <= clock_timestamp() - make_interval(secs => %(late)s))

-- lanes_due: lanes of a queue with due operations, the longest waiting first, without the lanes seen before.
SELECT lane FROM (
  SELECT lane, due_at FROM kernel_operation
  WHERE queue = %(queue)s AND done_at IS NULL AND due_at <= clock_timestamp() AND lane <> ALL (%(seen)s::varchar[])
  ORDER BY due_at LIMIT {n}) due
GROUP BY lane ORDER BY min(due_at)

-- take: acquires due operations of one lane. The later due_at is the lease; attempts is the fence.
WITH due AS MATERIALIZED (
  SELECT id FROM kernel_operation
  WHERE lane = %(lane)s AND done_at IS NULL AND due_at <= clock_timestamp() AND queue = %(queue)s
  ORDER BY due_at LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED)
UPDATE kernel_operation o SET attempts = attempts + 1, due_at = clock_timestamp() + make_interval(secs => %(lease)s)
FROM due WHERE o.id = due.id
RETURNING o.id, queue, lane, kind, pool_id, member_id, claim_id, generation, body::text, attempts

-- renew: extends the lease of acquired operations. Another worker holds the operations that are missing in the answer. (Here and below,
-- coalesce hides done_at IS NULL from the partial indexes: planned on an empty table, a look-up by id would walk all open operations.)
UPDATE kernel_operation o SET due_at = clock_timestamp() + make_interval(secs => %(lease)s)
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS t (id, attempt)
WHERE o.id = t.id AND o.attempts = t.attempt AND coalesce(o.done_at, 'infinity') = 'infinity' RETURNING o.id

-- repeat_overtaken: adds operations again that another worker has acquired since. The late call of the first worker may have followed the call
-- of the other one, and so undone it.
INSERT INTO kernel_operation (queue, lane, kind, pool_id, member_id, claim_id, generation, body)
SELECT queue, lane, kind, pool_id, member_id, claim_id, generation, body
FROM kernel_operation o, unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS t (id, attempt)
WHERE o.id = t.id AND o.attempts > t.attempt RETURNING id

-- settle_done: marks operations as done. Only the attempt that acquired an operation may do it.
UPDATE kernel_operation o SET done_at = clock_timestamp(), error = '', error_code = '', seen_by = ''
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS t (id, attempt)
WHERE o.id = t.id AND o.attempts = t.attempt AND coalesce(o.done_at, 'infinity') = 'infinity' RETURNING o.id

-- settle_failed^: records an error; the operation is due again after the back-off, after a permanent error in the far future. Only the
-- attempt that acquired the operation may do it.
UPDATE kernel_operation SET error = %(error)s, error_code = %(code)s, due_at = clock_timestamp() + make_interval(secs => %(delay)s)
WHERE id = %(operation)s AND attempts = %(attempt)s AND coalesce(done_at, 'infinity') = 'infinity' RETURNING id

-- retry_operation^: makes a failed operation due on the order of a person. The attempts stay: they are the fence.
UPDATE kernel_operation SET error = '', error_code = '', seen_by = '', due_at = clock_timestamp()
WHERE id = %(operation)s AND coalesce(done_at, 'infinity') = 'infinity' AND error_code <> ''
RETURNING lane, kind, pool_id, member_id, claim_id, generation

-- leased_lanes: lanes with operations that a worker has acquired, or has put off without an error.
SELECT DISTINCT lane FROM kernel_operation
WHERE queue = ANY (%(queues)s::varchar[]) AND done_at IS NULL AND due_at > clock_timestamp() AND attempts > 0 AND error = '' LIMIT 1000

-- end_leases: makes such operations of one lane due.
WITH leased AS MATERIALIZED (
  SELECT id FROM kernel_operation WHERE lane = %(lane)s AND done_at IS NULL AND due_at > clock_timestamp() AND attempts > 0 AND error = ''
  ORDER BY due_at LIMIT 1000 FOR NO KEY UPDATE)
UPDATE kernel_operation o SET due_at = clock_timestamp() FROM leased WHERE o.id = leased.id RETURNING o.id

-- make_lanes_due: makes failed and delayed operations due now. An operation that a worker performs now is performed again, without harm.
UPDATE kernel_operation SET due_at = least(due_at, clock_timestamp())
WHERE lane = ANY(%(lanes)s::text[]) AND done_at IS NULL AND error_code <> 'permanent' RETURNING id

-- see_operation^: records the person that has seen a permanent error.
UPDATE kernel_operation SET seen_by = %(actor)s WHERE id = %(operation)s AND coalesce(done_at, 'infinity') = 'infinity' AND error_code = 'permanent'
RETURNING lane, kind, pool_id, member_id, claim_id, generation

-- take_budget^: takes calls from the bucket of an account, which refills with time. No row: the bucket holds too few.
INSERT INTO kernel_budget AS b (key, tokens, spent_today) SELECT %(key)s, %(burst)s::float8 - %(calls)s, %(calls)s
ON CONFLICT (key) DO UPDATE SET
  tokens = least(%(burst)s::float8, b.tokens + %(rate)s::float8 * greatest(0, extract(epoch FROM clock_timestamp() - b.filled_at))) - %(calls)s,
  filled_at = clock_timestamp(), spent_on = CURRENT_DATE,
  spent_today = CASE WHEN b.spent_on = CURRENT_DATE THEN b.spent_today + %(calls)s ELSE %(calls)s END
WHERE least(%(burst)s::float8, b.tokens + %(rate)s::float8 * greatest(0, extract(epoch FROM clock_timestamp() - b.filled_at))) >= %(calls)s
RETURNING tokens

-- budget_left$: how many calls the bucket holds now.
SELECT least(%(burst)s::float8, tokens + %(rate)s::float8 * greatest(0, extract(epoch FROM clock_timestamp() - filled_at))) AS tokens
FROM kernel_budget WHERE key = %(key)s

-- count_throttled: counts a call from the bucket of an account that the provider throttled.
UPDATE kernel_budget SET throttled_at = clock_timestamp(),
  throttled_today = CASE WHEN throttled_at::date = CURRENT_DATE THEN throttled_today + 1 ELSE 1 END
WHERE key = %(key)s

-- budget_uses: how many calls buckets hold now, and how many were taken and throttled today.
SELECT b.key, least(w.burst, b.tokens + w.rate * greatest(0, extract(epoch FROM clock_timestamp() - b.filled_at))) AS available,
  CASE WHEN b.spent_on = CURRENT_DATE THEN b.spent_today ELSE 0 END AS spent_today,
  CASE WHEN b.throttled_at::date = CURRENT_DATE THEN b.throttled_today ELSE 0 END AS throttled_today, b.throttled_at
FROM unnest(%(keys)s::varchar[], %(rates)s::float8[], %(bursts)s::float8[]) AS w(key, rate, burst),
  LATERAL (SELECT * FROM kernel_budget WHERE key = w.key OFFSET 0) AS b

-- open_by_lane: open operations of lanes: all, those that are due, and those whose last attempt was throttled.
SELECT lane, count(*)::int AS n, count(*) FILTER (WHERE due_at <= clock_timestamp())::int AS due,
  count(*) FILTER (WHERE error_code = 'throttled')::int AS throttled, count(*) FILTER (WHERE error_code <> '')::int AS failed,
  min(due_at) AS next_at
FROM kernel_operation WHERE lane = ANY (%(lanes)s::varchar[]) AND done_at IS NULL GROUP BY lane

-- begin_call^: records the begin of a call to an outside object, with the time until which it may have an effect. Returns the task of an earlier call
-- that may still have an effect, empty if its number is not known.
-- @null earlier
WITH earlier AS (SELECT task FROM kernel_pendingcall WHERE key = %(key)s AND (task <> '' OR until > clock_timestamp()))
INSERT INTO kernel_pendingcall AS c (key, until) VALUES (%(key)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (key) DO UPDATE SET until = EXCLUDED.until, task = ''
RETURNING (SELECT task FROM earlier) AS earlier

-- set_call_task: records the number of the task that performs a call.
UPDATE kernel_pendingcall SET task = %(task)s WHERE key = %(key)s

-- end_call: records that the calls to an outside object have ended.
DELETE FROM kernel_pendingcall WHERE key = %(key)s

-- pending_call^: the call that may still have an effect.
SELECT task FROM kernel_pendingcall WHERE key = %(key)s AND (task <> '' OR until > clock_timestamp())
