"""What decides what a token may, as one text: asked when it calls, and asked again by the statement that acts for it."""

from django.db import migrations

# The same text as long as nothing of it changes. NULL: there is no such token.
SQL = """
CREATE FUNCTION token_told(secret_hash varchar) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT json_build_object('token', t.id, 'token_name', t.name, 'is_revoked', t.revoked_at IS NOT NULL,
      'is_expired', coalesce(t.expires_at <= now(), false), 'roles', t.scopes->'roles', 'pools', t.scopes->'pools',
      'names', CASE WHEN t.scopes->'pools' <> 'null' THEN (
        SELECT json_object_agg(p.name, p.id ORDER BY p.id) FROM pools_pool p
        WHERE p.state <> 'gone' AND p.id = ANY (ARRAY(SELECT x::bigint FROM jsonb_array_elements_text(t.scopes->'pools') x))) END,
      'user', u.id, 'username', u.username, 'is_active', u.is_active, 'is_superuser', u.is_superuser, 'grants', (
        SELECT json_agg(json_build_array(g.pool_id, (SELECT name FROM pools_pool p WHERE p.id = g.pool_id AND p.state <> 'gone'), g.role)
                        ORDER BY g.id)
        FROM pools_grant g
        WHERE g.user_id = u.id OR g.group_id = ANY (ARRAY(SELECT m.group_id FROM auth_user_groups m WHERE m.user_id = u.id))))::text
    FROM pools_token t JOIN auth_user u ON u.id = t.user_id WHERE t.hash = secret_hash);
END $$;
"""
UNDO = "DROP FUNCTION IF EXISTS token_told(varchar);"


class Migration(migrations.Migration):
    dependencies = [("pools", "0005_scaling"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunSQL(SQL, UNDO)]
