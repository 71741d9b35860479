-- What agents ask all the time, and their tokens.

-- identity: the member that a token names, and what of a token it knows. The one that was replaced opens for an hour more.
SELECT m.id, m.name, m.pool_id, p.name AS pool, p.revision, m.incarnation, m.state, m.is_leaving, m.token_hash,
  CASE WHEN m.token_since > now() - make_interval(secs => %(overlap)s) THEN m.previous_token_hash ELSE '' END AS previous
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id WHERE m.id = %(member)s

-- issue: another token. The present one goes on to open for a while, if it is of this incarnation and nothing else is said.
UPDATE pools_member SET token_hash = %(hash)s, previous_token_hash = CASE WHEN %(keep)s THEN token_hash ELSE '' END, token_since = now()
WHERE id = %(member)s AND incarnation = %(incarnation)s RETURNING id

-- revoke: none of its tokens opens anything any more.
UPDATE pools_member SET token_hash = '', previous_token_hash = '', token_since = now()
WHERE id = %(member)s AND (token_hash <> '' OR previous_token_hash <> '') RETURNING id
