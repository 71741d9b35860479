"""A member that is lost is known by a column, because it may come back; and the finalizer finds its members by index."""

from django.db import migrations, models

NOT_GONE = models.Q(("state", "gone"), _negated=True)


class Migration(migrations.Migration):
    dependencies = [("pools", "0002_rules")]
    operations = [
        migrations.AddField(model_name="member", name="lost_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(fields=["id"], condition=models.Q(("is_leaving", True), NOT_GONE), name="member_leaves"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(fields=["id"], condition=models.Q(("lost_at__isnull", False), NOT_GONE), name="member_lost"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(fields=["id"], condition=models.Q(("state__in", ("creating", "deleting"))), name="member_on_its_way"),
        ),
    ]
