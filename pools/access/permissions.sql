-- _grants: grants of a user, directly and through groups: [pool or null, its name while it exists, role], in a stable order.
(SELECT json_agg(json_build_array(g.pool_id, (SELECT name FROM pools_pool p WHERE p.id = g.pool_id AND p.state <> 'gone'), g.role) ORDER BY g.id)
   FROM pools_grant g
   WHERE g.user_id = u.id OR g.group_id = ANY (ARRAY(SELECT m.group_id FROM auth_user_groups m WHERE m.user_id = u.id)))

-- token_identity^: a token with its user, limits and grants in one statement. No row: the token is unknown.
-- @not_null facts
SELECT token_told(t.hash) AS facts, CASE WHEN t.last_used_at > now() - interval '1 min' THEN 0 ELSE t.id END AS note_use_of
FROM pools_token t WHERE t.hash = %(hash)s

-- user_identity^: a user with grants.
-- @not_null facts
SELECT json_build_object('user', u.id, 'username', u.username, 'is_active', u.is_active, 'is_superuser', u.is_superuser, 'grants', {_grants})::text AS facts
FROM auth_user u WHERE u.id = %(user)s

-- user_identities: several users with grants, including deactivated users.
-- @not_null facts
SELECT u.id, json_build_object('user', u.id, 'username', u.username, 'is_active', u.is_active, 'is_superuser', u.is_superuser, 'grants', {_grants})::text AS facts
FROM auth_user u WHERE u.id = ANY (%(users)s::bigint[])

-- hold_rights: lock the rights of these users until this transaction ends. A later statement reads the rights.
WITH u AS MATERIALIZED (SELECT id FROM auth_user WHERE id = ANY (%(users)s::bigint[]) ORDER BY id FOR SHARE),
m AS MATERIALIZED (SELECT id, group_id FROM auth_user_groups WHERE user_id = ANY (%(users)s::bigint[]) ORDER BY id FOR KEY SHARE),
g AS MATERIALIZED (
  SELECT id FROM pools_grant WHERE user_id = ANY (%(users)s::bigint[]) OR group_id = ANY (ARRAY(SELECT group_id FROM m)) ORDER BY id FOR KEY SHARE)
SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM m) + (SELECT count(*) FROM g) AS n

-- note_use: record the use of a token, at most once a minute. SKIP LOCKED: another request is recording it.
UPDATE pools_token SET last_used_at = now() WHERE id = (
  SELECT id FROM pools_token WHERE id = %(token)s AND coalesce(last_used_at < now() - interval '1 min', true) FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id

-- claimants: active people with a claiming role in a pool: superusers, and users by a role, directly or through a group. Berth's own programs are left out.
-- @nullable pool
SELECT u.username FROM auth_user u
WHERE u.is_active
  AND NOT (u.username = ANY (%(programs)s::text[]) AND u.password LIKE '!%%' AND NOT u.is_superuser)
  AND (u.is_superuser OR EXISTS (
    SELECT FROM pools_grant g
    WHERE g.role = ANY (%(roles)s::text[]) AND (g.pool_id IS NULL OR g.pool_id = %(pool)s::bigint)
      AND (g.user_id = u.id OR g.group_id = ANY (ARRAY(SELECT m.group_id FROM auth_user_groups m WHERE m.user_id = u.id)))))
ORDER BY u.id LIMIT 20
