"""Only declared moves: the database refuses every other one."""

from django.db import migrations

SQL = """
CREATE TRIGGER pool_move BEFORE UPDATE ON pools_pool FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ('{active>deleting,deleting>gone,pending>active,pending>deleting}'))
  EXECUTE FUNCTION refuse('no such move');
CREATE TRIGGER member_move BEFORE UPDATE ON pools_member FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ('{creating>deleting,creating>gone,creating>ready,deleting>gone,offline>creating,offline>deleting,offline>gone,offline>ready,ready>creating,ready>deleting,ready>gone,ready>offline}'))
  EXECUTE FUNCTION refuse('no such move');
"""
UNDO = """
DROP TRIGGER IF EXISTS pool_move ON pools_pool;
DROP TRIGGER IF EXISTS member_move ON pools_member;
"""


class Migration(migrations.Migration):
    dependencies = [("pools", "0001_initial"), ("kernel", "0001_initial")]
    operations = [migrations.RunSQL(SQL, UNDO)]
