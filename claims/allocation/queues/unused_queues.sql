-- Deletes the queues that no stored claim names. No index leads from a queue to its claims: it would cost each bind a tenth of its writes.
-- A walk therefore reads all claims once, in pieces, and then deletes the queues that it did not meet, a few at a time.

-- queues_of_claims^: the queues of the next {n} claims in the order of their ids.
SELECT max(id) AS last, array_agg(DISTINCT shape_id) AS queues FROM (
  SELECT id, shape_id FROM claims_claim WHERE id > %(after)s ORDER BY id LIMIT {n}) x

-- newest_queue$: the last queue that a walk may delete. Later ones are left to the next walk.
SELECT max(id) FROM claims_shape

-- unused_queues: queues that the walk did not meet and the allocator has not tried for a day.
SELECT id FROM claims_shape WHERE id <= %(newest)s AND id <> ALL (%(met)s::bigint[]) AND coalesce(tried_at < now() - interval '1 day', true)
ORDER BY id LIMIT {n}

-- delete_queue: fails with an integrity error where a claim has entered the queue since the walk.
DELETE FROM claims_shape WHERE id = %(queue)s RETURNING id
