"""Blocked and waiting claims of a workspace are found by index: locking it must not walk all claims."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0003_rules'),
        ('pools', '0001_initial'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('workspace__isnull', False), models.Q(('state', 'ended'), _negated=True)), fields=['workspace', 'id'], name='claim_of_workspace'),
        ),
    ]
