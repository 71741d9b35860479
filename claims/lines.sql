-- Lines that no claim has stood in for as long as claims are kept: found by walking the claims once, in pieces, as no index leads from a
-- line to its claims (one would cost a bind a tenth of its writing); deleted a few at a time.

-- lines_of_claims^: the next claims in the order of their ids: the lines that they stand in, or stood in.
SELECT max(id) AS last, array_agg(DISTINCT shape_id) AS lines FROM (
  SELECT id, shape_id FROM claims_claim WHERE id > %(after)s ORDER BY id LIMIT {n}) x

-- newest_line$: what is younger is left for the next walk.
SELECT max(id) FROM claims_shape

-- unused_lines: of the older ones those that the walk did not meet.
SELECT id FROM claims_shape WHERE id <= %(newest)s AND id <> ALL (%(met)s::bigint[]) AND coalesce(tried_at < now() - interval '1 day', true)
ORDER BY id LIMIT {n}

-- delete_line: the foreign key of claims looks once more, and refuses where somebody has come meanwhile.
DELETE FROM claims_shape WHERE id = %(line)s RETURNING id

-- hold_line^: it stays as long as this transaction makes a claim in it.
SELECT id FROM claims_shape WHERE id = %(line)s AND digest = %(digest)s FOR KEY SHARE
