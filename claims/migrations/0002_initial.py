
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('claims', '0001_initial'),
        ('pools', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='claim',
            name='pool',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='pools.pool'),
        ),
        migrations.AddField(
            model_name='claim',
            name='claim_set',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='claims.claimset'),
        ),
        migrations.AddField(
            model_name='plan',
            name='claim',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='plans', to='claims.claim'),
        ),
        migrations.AddField(
            model_name='claim',
            name='approved_plan',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='claims.plan'),
        ),
        migrations.AddField(
            model_name='approval',
            name='plan',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='claims.plan'),
        ),
        migrations.AddIndex(
            model_name='shape',
            index=django.contrib.postgres.indexes.GinIndex(fields=['pools'], name='shape_pools'),
        ),
        migrations.AddConstraint(
            model_name='shape',
            constraint=models.UniqueConstraint(fields=('digest',), name='shape_digest'),
        ),
        migrations.AddField(
            model_name='claimset',
            name='shape',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='claims.shape'),
        ),
        migrations.AddField(
            model_name='claim',
            name='shape',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='claims.shape'),
        ),
        migrations.AddConstraint(
            model_name='workspace',
            constraint=models.UniqueConstraint(fields=('name',), name='workspace_name'),
        ),
        migrations.AddField(
            model_name='claim',
            name='workspace',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='claims.workspace'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.UniqueConstraint(condition=models.Q(('is_stale', False)), fields=('claim',), name='plan_current'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(fields=('plan', 'by_user'), name='approval_once'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(fields=('link',), name='approval_link'),
        ),
        migrations.AddConstraint(
            model_name='claimset',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['active', 'deleting'])), name='claim_set_state_known'),
        ),
        migrations.AddConstraint(
            model_name='claimset',
            constraint=models.UniqueConstraint(fields=('name',), name='claim_set_name'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['shape', 'rank', 'id'], name='claim_line'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('state', 'ended'), _negated=True), fields=['owner'], name='claim_owner'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at'], name='claim_due'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('claim_set__isnull', False), models.Q(('state', 'ended'), _negated=True)), fields=['claim_set'], name='claim_of_set'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('state', 'blocked')), fields=['workspace', 'rank', 'id'], name='claim_blocked'),
        ),
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(fields=['pool', 'id'], name='claim_of_pool'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['blocked', 'bound', 'ended', 'parked', 'reserved', 'waiting'])), name='claim_state_known'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(('size__gt', 0)), name='claim_size'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'ended'), models.Q(('outcome', ''), _negated=True)), models.Q(models.Q(('state', 'ended'), _negated=True), ('outcome', '')), _connector='OR'), name='claim_outcome'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ('reserved', 'parked')), _negated=True), ('expires_at__isnull', False), _connector='OR'), name='claim_deadline'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ('bound', 'reserved')), ('named_generation', models.F('generation')), _connector='OR'), name='claim_named'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('step', 'apply'), _negated=True), ('approved_plan__isnull', False), _connector='OR'), name='claim_apply_approved'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.UniqueConstraint(fields=('requested_by', 'key'), name='claim_key'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.UniqueConstraint(condition=models.Q(('is_serial', True), ('state__in', ('waiting', 'bound', 'reserved', 'parked'))), fields=('workspace',), name='claim_serial'),
        ),
    ]
