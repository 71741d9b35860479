"""Who waits for a pool is found by the pool: the lines in which nobody waits, however many, are not looked at."""

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0006_decisions'),
        ('pools', '0004_restarts'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('pool__isnull', False), ('state', 'waiting')), fields=['pool', 'rank', 'shape'], name='claim_rivals'),
        ),
        migrations.AddIndex(
            model_name='shape',
            index=django.contrib.postgres.indexes.GinIndex(models.F('pools__1_16'), name='shape_pools_behind'),
        ),
    ]
