"""A username names its user for ever: claims, approvals and events tell people apart by it."""

from django.db import migrations

SQL = """
CREATE FUNCTION refuse_user_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'user %: %', OLD.username, TG_ARGV[0] USING ERRCODE = 'BR001', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER username_fixed BEFORE UPDATE OF username ON auth_user FOR EACH ROW
  WHEN (OLD.username IS DISTINCT FROM NEW.username) EXECUTE FUNCTION refuse_user_change('a username cannot be changed; add another user');
CREATE TRIGGER user_kept BEFORE DELETE ON auth_user FOR EACH ROW
  EXECUTE FUNCTION refuse_user_change('a user cannot be deleted, because the name must not be used again; deactivate it');
"""
UNDO = """
DROP TRIGGER IF EXISTS user_kept ON auth_user;
DROP TRIGGER IF EXISTS username_fixed ON auth_user;
DROP FUNCTION IF EXISTS refuse_user_change();
"""


class Migration(migrations.Migration):
    dependencies = [("kernel", "0003_database_place"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunSQL(SQL, UNDO)]
