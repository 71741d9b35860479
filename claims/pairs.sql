-- Claims that take the same number in two lanes of one member (TCP and UDP with separate listeners), and claims of the same numbers in
-- several pools. These statements find and lock the slots; `hand_over` binds them.

-- find_pairs: k numbers that are free in both lanes, on any members. A number is passed over unless both of its rows can be locked.
SELECT a.id, b.id AS other_id, a.member_id, a.number FROM slots_slot a
JOIN slots_slot b ON b.member_id = a.member_id AND b.lane = %(other)s AND b.number = a.number AND b.state = 'idle' AND b.is_open
WHERE a.pool_id = %(pool)s AND a.lane = %(lane)s AND a.state = 'idle' AND a.is_open
ORDER BY a.rank, a.number LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED

-- find_labelled_pairs: find_pairs on members with these labels.
SELECT a.id, b.id AS other_id, a.member_id, a.number FROM slots_slot a
JOIN slots_slot b ON b.member_id = a.member_id AND b.lane = %(other)s AND b.number = a.number AND b.state = 'idle' AND b.is_open
JOIN pools_member m ON m.id = a.member_id
WHERE a.pool_id = %(pool)s AND a.lane = %(lane)s AND a.state = 'idle' AND a.is_open AND selects(%(labels)s::jsonb, m.labels)
ORDER BY a.rank, a.number LIMIT {n} FOR NO KEY UPDATE OF a, b SKIP LOCKED

-- find_paired_run^: k numbers in a row (with this step) that are free in both lanes of one member.
SELECT m.id AS member_id, r.number FROM pools_member m CROSS JOIN LATERAL (
  SELECT number FROM (
    SELECT a.number, lead(a.number, {n} - 1) OVER (ORDER BY a.number) AS last FROM slots_slot a
    JOIN slots_slot b ON b.member_id = a.member_id AND b.lane = %(other)s AND b.number = a.number AND b.state = 'idle' AND b.is_open
    WHERE a.member_id = m.id AND a.lane = %(lane)s AND a.state = 'idle' AND a.is_open) w
  WHERE last = number + ({n} - 1) * %(step)s::int LIMIT 1) r
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND selects(%(labels)s::jsonb, m.labels) ORDER BY m.position, m.id LIMIT 1

-- find_paired_together^: a member with k numbers that are free in both lanes, and the lowest of these numbers.
-- @not_null numbers
SELECT m.id AS member_id, r.numbers FROM pools_member m CROSS JOIN LATERAL (
  SELECT array_agg(number) AS numbers FROM (
    SELECT a.number FROM slots_slot a
    JOIN slots_slot b ON b.member_id = a.member_id AND b.lane = %(other)s AND b.number = a.number AND b.state = 'idle' AND b.is_open
    WHERE a.member_id = m.id AND a.lane = %(lane)s AND a.state = 'idle' AND a.is_open ORDER BY a.number LIMIT {n}) x) r
WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND NOT m.is_cordoned AND selects(%(labels)s::jsonb, m.labels) AND cardinality(r.numbers) = {n}
ORDER BY m.position, m.id LIMIT 1

-- lock_numbers: locks these numbers on one member. Fewer rows than requested: another transaction was faster, search again.
SELECT id, lane, number FROM slots_slot
WHERE member_id = %(member)s AND lane = ANY (%(lanes)s::varchar[]) AND number = ANY (%(numbers)s::int[]) AND state = 'idle' AND is_open
ORDER BY number, array_position(%(lanes)s::varchar[], lane) FOR NO KEY UPDATE SKIP LOCKED

-- places_of: where these slots are.
SELECT id, pool_id, lane, member_id, number FROM slots_slot WHERE id = ANY (%(slots)s::bigint[])

-- part_labels: the parts of claims with their names for people: `80/TCP`.
-- @not_null label, same_number
SELECT claim_id, kind, pools, (options->>'port') || '/' || (options->>'protocol') AS label,
  coalesce((options->>'same_number')::bool, false) AS same_number
FROM claims_claimpart WHERE claim_id = ANY (%(claims)s::bigint[]) ORDER BY claim_id, index

-- place_parts: sets the slots of the parts of a claim, in the order of the parts. They are known once the pools of the parts exist.
UPDATE claims_claimpart SET first = t.first, count = t.count
FROM unnest(%(firsts)s::smallint[], %(counts)s::smallint[]) WITH ORDINALITY AS t(first, count, n)
WHERE claim_id = %(claim)s AND index = t.n - 1 AND (claims_claimpart.first, claims_claimpart.count) IS DISTINCT FROM (t.first, t.count)

-- free_numbers: the free numbers in these lanes of a pool, by member in their order.
SELECT s.member_id, s.lane, array_agg(s.number) AS numbers FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
WHERE s.pool_id = %(pool)s AND s.lane = ANY (%(lanes)s::varchar[]) AND s.state = 'idle' AND s.is_open AND selects(%(labels)s::jsonb, m.labels)
GROUP BY m.position, s.member_id, s.lane ORDER BY m.position, s.member_id

-- size_claim: sets the number of slots of a claim. It is known once its pools exist: a number takes one slot or two.
UPDATE claims_claim SET size = %(size)s WHERE id = %(claim)s AND state = 'waiting' AND size <> %(size)s

-- mark_simple: sets whether a queue is served in batches. Its pool may be newer than the queue, or have changed its layout.
UPDATE claims_shape SET is_simple = %(is_simple)s WHERE id = %(shape)s AND is_simple <> %(is_simple)s

-- count_pairs^: how many numbers are free in both lanes of a pool, and in each.
SELECT count(*) FILTER (WHERE n = 2)::int AS both, coalesce(sum(one), 0)::int AS one, coalesce(sum(other), 0)::int AS other FROM (
  SELECT count(*) AS n, count(*) FILTER (WHERE s.lane = %(lane)s) AS one, count(*) FILTER (WHERE s.lane = %(other)s) AS other
  FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
  WHERE s.pool_id = %(pool)s AND s.lane IN (%(lane)s, %(other)s) AND s.state = 'idle' AND s.is_open AND selects(%(labels)s::jsonb, m.labels)
  GROUP BY s.member_id, s.number) x

-- longest_paired_run^: the member with these labels that has the longest run of numbers that are free in both lanes, and its length.
SELECT member_id, max(length)::int AS length FROM (
  SELECT member_id, count(*) AS length FROM (
    SELECT member_id, number - %(step)s::int * row_number() OVER (PARTITION BY member_id ORDER BY number) AS island FROM (
      SELECT member_id, number FROM slots_slot
      WHERE pool_id = %(pool)s AND lane IN (%(lane)s, %(other)s) AND state = 'idle' AND is_open
        AND (%(labels)s::jsonb = '{}' OR member_id IN (SELECT id FROM pools_member WHERE pool_id = %(pool)s AND selects(%(labels)s::jsonb, labels)))
      GROUP BY member_id, number HAVING count(*) = 2) x) y
  GROUP BY member_id, island) z
GROUP BY member_id ORDER BY 2 DESC, 1 LIMIT 1

-- most_paired_on_one^: the member with these labels that has the most numbers that are free in both lanes.
SELECT member_id, count(*)::int AS length FROM (
  SELECT member_id FROM slots_slot
  WHERE pool_id = %(pool)s AND lane IN (%(lane)s, %(other)s) AND state = 'idle' AND is_open
    AND (%(labels)s::jsonb = '{}' OR member_id IN (SELECT id FROM pools_member WHERE pool_id = %(pool)s AND selects(%(labels)s::jsonb, labels)))
  GROUP BY member_id, number HAVING count(*) = 2) x
GROUP BY member_id ORDER BY 2 DESC, 1 LIMIT 1
