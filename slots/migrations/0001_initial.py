
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('pools', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='HoldStat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('lane', models.CharField(max_length=16)),
                ('kind', models.CharField(max_length=32)),
                ('hour', models.DateTimeField()),
                ('histogram', models.JSONField(default=list)),
                ('pool', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='hold_stats', to='pools.pool')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('pool', 'lane', 'kind', 'hour'), name='hold_stat_once')],
            },
        ),
        migrations.CreateModel(
            name='Slot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('lane', models.CharField(max_length=16)),
                ('number', models.IntegerField()),
                ('rank', models.IntegerField(db_default=0, default=0)),
                ('is_open', models.BooleanField(db_default=True, default=True)),
                ('state', models.CharField(choices=[('idle', 'idle'), ('held', 'held'), ('reserved', 'reserved'), ('draining', 'draining'), ('retired', 'retired')], db_default='idle', default='idle', max_length=16)),
                ('claim_id', models.BigIntegerField(blank=True, null=True)),
                ('ordinal', models.SmallIntegerField(blank=True, null=True)),
                ('generation', models.BigIntegerField(db_default=0, default=0)),
                ('last_claim_id', models.BigIntegerField(blank=True, null=True)),
                ('drain_until', models.DateTimeField(blank=True, null=True)),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('observed', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('member', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='slots', to='pools.member')),
                ('pool', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='slots', to='pools.pool')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('is_open', True), ('state', 'idle')), fields=['pool', 'lane', 'rank', 'number'], name='slot_free'), models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at'], name='slot_due'), models.Index(condition=models.Q(('state', 'draining')), fields=['last_claim_id'], name='slot_drains_for')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['draining', 'held', 'idle', 'reserved', 'retired'])), name='slot_state_known'), models.CheckConstraint(condition=models.Q(models.Q(('claim_id__isnull', False), ('ordinal__gte', 0), ('ordinal__isnull', False), ('state__in', ('held', 'reserved'))), models.Q(('claim_id__isnull', True), ('ordinal__isnull', True), models.Q(('state__in', ('held', 'reserved')), _negated=True)), _connector='OR'), name='slot_holder'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'draining'), _negated=True), ('drain_until__isnull', False), _connector='OR'), name='slot_drain'), models.UniqueConstraint(fields=('member', 'lane', 'number'), name='slot_place'), models.UniqueConstraint(condition=models.Q(('claim_id__isnull', False)), fields=('claim_id', 'ordinal'), name='slot_seat')],
            },
        ),
    ]
