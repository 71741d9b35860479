-- Logs of runs, written piece by piece, each once and in order.

-- add^: append the next pieces of a log. No row if other pieces are next or the run belongs to another member. The number of a line is the
-- number of line breaks before it, so a piece may end in the middle of a line.
WITH r AS (
  UPDATE claims_run SET log_next = log_next + cardinality(%(datas)s::bytea[]), log_bytes = log_bytes + %(bytes)s, log_lines = log_lines + %(lines)s,
    log_left_out = log_left_out + %(left_out)s
  WHERE claim_id = %(claim)s AND generation = %(generation)s AND member_id = %(member)s AND log_next = %(first)s
    AND log_bytes + %(bytes)s <= %(most)s
  RETURNING claim_id, generation, log_next, log_lines - %(lines)s AS line, log_left_out - %(left_out)s AS left_out_before)
INSERT INTO claims_logchunk (claim_id, generation, seq, data, first_line, lines, size)
SELECT r.claim_id, r.generation, %(first)s + t.n - 1, t.data, r.line + t.before, t.lines, t.size
FROM r, unnest(%(datas)s::bytea[], %(befores)s::int[], %(each)s::int[], %(sizes)s::int[]) WITH ORDINALITY AS t(data, before, lines, size, n)
RETURNING (SELECT log_next FROM r) AS next, (SELECT left_out_before FROM r) AS left_out_before

-- note_limit: mark the log of a run as incomplete. No row if the mark exists.
UPDATE claims_run SET facts = facts || '{"log_limit": true}' WHERE claim_id = %(claim)s AND generation = %(generation)s AND NOT facts ? 'log_limit'
RETURNING claim_id

-- state^: the size of a log.
SELECT r.member_id, r.log_next, r.log_bytes, r.log_lines, r.log_left_out, r.ended_at IS NOT NULL AS is_over, c.pool_id
FROM claims_run r JOIN claims_claim c ON c.id = r.claim_id WHERE r.claim_id = %(claim)s AND r.generation = %(generation)s

-- pieces: pieces of a log, in order.
SELECT seq, data, first_line, lines, size, at FROM claims_logchunk
WHERE claim_id = %(claim)s AND generation = %(generation)s AND seq > %(after)s AND seq < %(before)s ORDER BY seq LIMIT {n}

-- tail$: the first piece of the last lines.
SELECT seq FROM claims_logchunk WHERE claim_id = %(claim)s AND generation = %(generation)s AND first_line <= %(line)s ORDER BY seq DESC LIMIT 1

-- runs: the runs of a claim, oldest first.
SELECT claim_id, generation, step, member_id, member, place, started_at, ended_at, outcome, code, reason, exit_code, facts::text AS facts,
  log_next, log_bytes, log_lines, log_left_out
FROM claims_run WHERE claim_id = %(claim)s ORDER BY generation

-- grown: the followed logs that have grown or ended.
SELECT t.claim, t.generation, t.following FROM unnest(%(claims)s::bigint[], %(generations)s::bigint[], %(nexts)s::int[]) AS t(claim, generation, following)
LEFT JOIN claims_run r ON r.claim_id = t.claim AND r.generation = t.generation
WHERE r.claim_id IS NULL OR r.log_next > t.following OR r.ended_at IS NOT NULL
