"""A drain says since when and by whom; a token when its agent took it, so that the one before opens until then."""

from django.db import migrations, models

NOT_GONE = models.Q(("state", "gone"), _negated=True)


class Migration(migrations.Migration):
    dependencies = [("pools", "0006_token_told")]
    operations = [
        migrations.AddField(model_name="member", name="drain_since", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            model_name="member", name="drain_by", field=models.CharField(blank=True, db_default="", default="", max_length=80)
        ),
        migrations.AddField(model_name="member", name="token_used_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="member", name="token_due_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model_name="member", name="is_previous_ending", field=models.BooleanField(db_default=False, default=False)),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(fields=["drain_until"], condition=models.Q(("drain_until__isnull", False), NOT_GONE), name="member_drains"),
        ),
    ]
