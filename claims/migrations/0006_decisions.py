"""Plans that wait for a person are found by their deadline, those that look for a slot again and approved ones in line by their turn."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0005_tasks'),
    ]

    operations = [
        migrations.AddField(
            model_name='claim',
            name='reserved_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='claim',
            name='is_seeking',
            field=models.BooleanField(db_default=False, default=False),
        ),
        # Whatever waits for a person already: nothing did so in earlier versions, but its statements were there.
        migrations.RunSQL("UPDATE claims_claim SET reserved_at = changed_at WHERE state IN ('reserved', 'parked')", migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('state__in', ('reserved', 'parked'))), fields=['expires_at', 'id'], name='claim_pending'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('is_seeking', True)), fields=['rank', 'id'], name='claim_seeks'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('state', 'waiting'), ('step', 'apply')), fields=['rank', 'id'], name='claim_applies'),
        ),
    ]
