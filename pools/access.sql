-- _grants: what a user may, directly and through groups: [pool or null, its name while it is there, role].
(SELECT json_agg(json_build_array(g.pool_id, p.name, g.role)) FROM (
    SELECT pool_id, role FROM pools_grant WHERE user_id = u.id
    UNION SELECT pool_id, role FROM pools_grant WHERE group_id IN (SELECT group_id FROM auth_user_groups WHERE user_id = u.id)) g
  LEFT JOIN pools_pool p ON p.id = g.pool_id AND p.state <> 'gone')::text AS grants

-- token_identity: who calls with this token, and all that decides what they may, in one look. No row: there is no such token.
SELECT t.id, t.name, t.revoked_at IS NOT NULL AS is_revoked, coalesce(t.expires_at <= now(), false) AS is_expired,
  coalesce(t.last_used_at < now() - interval '1 min', true) AS is_use_old, t.scopes::text AS scopes,
  CASE WHEN t.scopes->'pools' <> 'null' THEN (
    SELECT json_object_agg(p.name, p.id) FROM jsonb_array_elements_text(t.scopes->'pools') x(id) JOIN pools_pool p ON p.id = x.id::bigint
    WHERE p.state <> 'gone')::text END AS names,
  u.id AS user_id, u.username, u.is_active, u.is_superuser, {_grants}
FROM pools_token t JOIN auth_user u ON u.id = t.user_id WHERE t.hash = %(hash)s

-- user_identity: the same for a person who has signed in.
SELECT u.id AS user_id, u.username, u.is_active, u.is_superuser, {_grants} FROM auth_user u WHERE u.id = %(user)s

-- note_use: at most once a minute, and never waiting for another request that notes the same.
UPDATE pools_token SET last_used_at = now() WHERE id = (
  SELECT id FROM pools_token WHERE id = %(token)s AND coalesce(last_used_at < now() - interval '1 min', true) FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id
