-- What agents ask all the time, and their tokens.

-- identity: the member that a token names, and what of a token it knows. The one that was replaced opens until the new one has been used,
-- and for an hour after it was made.
SELECT m.id, m.name, m.pool_id, p.name AS pool, p.revision, m.incarnation, m.state, m.is_leaving, m.token_hash,
  m.token_used_at IS NOT NULL AS is_used,
  CASE WHEN m.token_used_at IS NULL OR m.token_since > now() - make_interval(secs => %(overlap)s) THEN m.previous_token_hash ELSE '' END AS previous
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id WHERE m.id = %(member)s

-- issue: another token. The one in use goes on to open for a while, if it is of this incarnation and nothing else is said; one that was made
-- and never used is forgotten.
UPDATE pools_member SET token_hash = %(hash)s, token_since = now(), token_used_at = NULL, token_due_at = NULL,
  previous_token_hash = CASE WHEN NOT %(keep)s THEN '' WHEN token_used_at IS NULL AND previous_token_hash <> '' THEN previous_token_hash
    ELSE token_hash END
WHERE id = %(member)s AND incarnation = %(incarnation)s RETURNING id

-- use: the present one came for the first time. Whoever has the row just now does not make it wait: it comes again. An order that is not
-- carried out yet is about the next one.
UPDATE pools_member SET token_used_at = now(), is_previous_ending = is_previous_ending AND token_due_at IS NOT NULL,
  previous_token_hash = CASE WHEN is_previous_ending THEN '' ELSE previous_token_hash END
FROM (SELECT id FROM pools_member WHERE id = %(member)s AND token_hash = %(hash)s AND token_used_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) o
WHERE pools_member.id = o.id RETURNING pools_member.id

-- revoke: none of its tokens opens anything any more.
UPDATE pools_member SET token_hash = '', previous_token_hash = '', token_since = now(), token_used_at = NULL, token_due_at = NULL
WHERE id = %(member)s AND (token_hash <> '' OR previous_token_hash <> '') RETURNING id

-- _due: somebody wants another one, it is old, or the last new one did not reach its agent.
(m.token_due_at IS NOT NULL OR m.token_hash <> '' AND (m.token_since <= now() - make_interval(secs => %(age)s::float8)
  OR (m.token_used_at IS NULL AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8))))

-- is_due: whether it is time for another token.
SELECT {_due} FROM pools_member m WHERE m.id = %(member)s

-- due: members of a pool whose agents are to get another token, and nobody is on the way with it.
SELECT m.id FROM pools_member m WHERE m.pool_id = %(pool)s AND m.state = 'ready' AND {_due}
  AND NOT EXISTS (SELECT FROM kernel_operation WHERE lane = 'member:' || m.id AND done_at IS NULL ORDER BY due_at OFFSET 0)
ORDER BY m.id LIMIT {n}

-- old: tokens that are worth a look: of agents that somebody else starts, those that are due soon; of ours, what did not get there.
SELECT m.id, m.name, m.pool_id, p.name AS pool, p.provider = ANY (%(ours)s::varchar[]) AS is_ours,
  extract(epoch FROM now() - m.token_since)::float8 AS age, m.token_used_at IS NULL AS is_untaken
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE m.state IN ('ready', 'offline') AND m.token_hash <> '' AND p.state <> 'deleting' AND (
  p.provider = ANY (%(theirs)s::varchar[]) AND m.token_since <= now() - make_interval(secs => %(age)s::float8 - %(notice)s::float8)
  OR p.provider = ANY (%(ours)s::varchar[]) AND m.state = 'ready' AND m.previous_token_hash <> '' AND m.token_used_at IS NULL
    AND m.token_since <= now() - make_interval(secs => %(untaken)s::float8)
  OR p.provider = ANY (%(ours)s::varchar[]) AND m.state = 'ready'
    AND m.token_since <= now() - make_interval(secs => %(age)s::float8 + 3600))
ORDER BY m.token_since, m.id LIMIT {n}
