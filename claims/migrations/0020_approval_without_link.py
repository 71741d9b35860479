"""No approval ever had a link: approvals come from pages and the API."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("claims", "0019_workspace_pools")]
    operations = [
        migrations.RemoveConstraint("approval", "approval_link"),
        migrations.RemoveField("approval", "link"),
    ]
