"""A workspace belongs to a pool: that of its last apply, else of its last claim. Other pools whose claims used it may be undecided shares."""

import django.db.models.deletion
from django.db import migrations, models

OWNERS = """
UPDATE claims_workspace w SET pool_id = coalesce(
  (SELECT c.pool_id FROM claims_run r JOIN claims_claim c ON c.id = r.claim_id
   WHERE c.workspace_id = w.id AND r.step = 'apply' AND c.pool_id IS NOT NULL ORDER BY r.started_at DESC, r.generation DESC LIMIT 1),
  (SELECT c.pool_id FROM claims_claim c WHERE c.workspace_id = w.id AND c.step = 'apply' AND c.pool_id IS NOT NULL ORDER BY c.id DESC LIMIT 1),
  (SELECT c.pool_id FROM claims_claim c WHERE c.workspace_id = w.id AND c.pool_id IS NOT NULL ORDER BY c.id DESC LIMIT 1))
"""
SHARES = """
INSERT INTO claims_workspaceshare (workspace_id, pool_id, reason)
SELECT DISTINCT w.id, c.pool_id, 'its claims used the workspace before workspaces belonged to pools'
FROM claims_workspace w JOIN claims_claim c ON c.workspace_id = w.id JOIN pools_pool p ON p.id = c.pool_id
WHERE c.pool_id <> w.pool_id AND p.state <> 'gone'
"""


class Migration(migrations.Migration):
    dependencies = [("claims", "0018_rescued_states"), ("pools", "0012_cordon_kept")]
    operations = [
        migrations.RemoveConstraint("workspace", "workspace_name"),
        migrations.AddField(
            "workspace",
            "pool",
            models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="workspaces",
                to="pools.pool",
            ),
        ),
        migrations.CreateModel(
            name="WorkspaceShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("allowed_at", models.DateTimeField(blank=True, null=True)),
                ("allowed_by", models.CharField(blank=True, db_default="", default="", max_length=80)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="shared_workspaces", to="pools.pool"
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="shares", to="claims.workspace"
                    ),
                ),
            ],
        ),
        migrations.RunSQL(OWNERS, migrations.RunSQL.noop),
        migrations.RunSQL(SHARES, migrations.RunSQL.noop),
        # Constraints that are deferred would be checked at the end of this transaction, and no table can be altered until then.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.AddConstraint(
            "workspace", models.UniqueConstraint(fields=["pool", "name"], name="workspace_name", nulls_distinct=False)
        ),
        migrations.AddConstraint(
            "workspaceshare", models.UniqueConstraint(fields=["workspace", "pool"], name="workspace_share_once")
        ),
    ]
