"""The index of live claims by owner was a subset of every condition on a state: after statistics of a table without live claims, the
planner read all of it in place of looking up a claim by its id or queue."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("claims", "0020_approval_without_link")]
    operations = [
        migrations.RemoveIndex("claim", "claim_owner"),
        migrations.AddIndex("claim", models.Index(condition=models.Q(("outcome", "")), fields=["owner"], name="claim_owner")),
    ]
