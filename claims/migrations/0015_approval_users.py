"""An approval is a user's, by id. Approvals of users who no longer exist keep the name and do not count."""

from django.db import migrations, models

FILL = """
UPDATE claims_approval SET user_id = u.id FROM auth_user u
WHERE u.username = by_user OR length(u.username) > 80 AND by_user = 'user:' || u.id
"""


class Migration(migrations.Migration):
    dependencies = [("claims", "0014_sealed_tasks"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [
        migrations.AddField("approval", "user_id", models.BigIntegerField(null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RemoveConstraint("approval", "approval_once"),
        migrations.AddConstraint("approval", models.UniqueConstraint(fields=["plan", "user_id"], name="approval_once")),
    ]
