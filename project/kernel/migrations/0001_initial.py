"""Events, operations, budgets and beats; the sequence of generations; what refuses a change that may not be."""

import django.db.models.functions.datetime
import project.kernel.db.fields
from django.contrib.postgres.operations import BtreeGistExtension
from django.db import migrations, models


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- to_jsonb, because a row need not have an id; OLD is null in an insert and NEW in a delete
  RAISE EXCEPTION '% %: %', TG_TABLE_NAME, coalesce(to_jsonb(OLD), to_jsonb(NEW)) ->> 'id', TG_ARGV[0]
    USING ERRCODE = 'BR001', CONSTRAINT = TG_NAME;
END $$;
"""

# Old events leave by retention, and a restore of an old copy makes their transaction ids lie in the future: then `tx` alone is
# renumbered. Both say so in a setting of their transaction; nothing else may touch an event.
APPEND_ONLY = """
CREATE TRIGGER event_kept BEFORE DELETE ON kernel_event FOR EACH ROW
  WHEN (current_setting('berth.retention', true) IS DISTINCT FROM 'delete') EXECUTE FUNCTION refuse('events are kept');
CREATE TRIGGER event_unchanged BEFORE UPDATE ON kernel_event FOR EACH ROW
  WHEN (current_setting('berth.retention', true) IS DISTINCT FROM 'renumber' OR to_jsonb(OLD) - 'tx' <> to_jsonb(NEW) - 'tx')
  EXECUTE FUNCTION refuse('events do not change');
"""
NOT_APPEND_ONLY = """
DROP TRIGGER event_unchanged ON kernel_event;
DROP TRIGGER event_kept ON kernel_event;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        BtreeGistExtension(),
        migrations.RunSQL("CREATE SEQUENCE generation", "DROP SEQUENCE generation"),
        migrations.RunSQL(REFUSE, "DROP FUNCTION refuse()"),
        migrations.CreateModel(
            name='Beat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40)),
                ('instance', models.CharField(max_length=120)),
                ('started_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField()))),
                ('at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField()))),
                ('steps', models.BigIntegerField(db_default=0)),
                ('failures', models.IntegerField(db_default=0, help_text='Failed steps in a row.')),
                ('error', models.TextField(blank=True, db_default='')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('name', 'instance'), name='beat_instance'), models.CheckConstraint(condition=models.Q(('at__gte', models.F('started_at'))), name='beat_in_order')],
            },
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=80)),
                ('tokens', models.FloatField()),
                ('filled_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField()))),
                ('spent_today', models.BigIntegerField(db_default=0)),
                ('spent_on', models.DateField(db_default=models.Func(function='CURRENT_DATE', output_field=models.DateField(), template='%(function)s'))),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('key',), name='budget_key')],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tx', project.kernel.db.fields.TransactionIdField(db_default=models.Func(function='pg_current_xact_id', output_field=project.kernel.db.fields.TransactionIdField()), editable=False)),
                ('at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField()), editable=False)),
                ('verb', models.CharField(max_length=24)),
                ('pool_id', models.BigIntegerField(blank=True, null=True)),
                ('member_id', models.BigIntegerField(blank=True, null=True)),
                ('slot_id', models.BigIntegerField(blank=True, null=True)),
                ('claim_id', models.BigIntegerField(blank=True, null=True)),
                ('generation', models.BigIntegerField(blank=True, null=True)),
                ('before', models.CharField(blank=True, db_default='', max_length=16)),
                ('after', models.CharField(blank=True, db_default='', max_length=16)),
                ('actor', models.CharField(max_length=80)),
                ('reason', models.TextField(blank=True, db_default='')),
                ('data', models.JSONField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['tx', 'id'], name='event_position'), models.Index(condition=models.Q(('slot_id__isnull', False)), fields=['slot_id', 'id'], name='event_slot'), models.Index(condition=models.Q(('claim_id__isnull', False)), fields=['claim_id', 'id'], name='event_claim'), models.Index(condition=models.Q(('pool_id__isnull', False)), fields=['pool_id', 'id'], name='event_pool')],
            },
        ),
        migrations.CreateModel(
            name='Operation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('queue', models.CharField(db_default='default', help_text='Who performs it: one queue for each provider.', max_length=40)),
                ('lane', models.CharField(help_text='One writer at a time: a load balancer, a member.', max_length=80)),
                ('kind', models.CharField(max_length=16)),
                ('pool_id', models.BigIntegerField(blank=True, null=True)),
                ('member_id', models.BigIntegerField(blank=True, null=True)),
                ('claim_id', models.BigIntegerField(blank=True, null=True)),
                ('generation', models.BigIntegerField(blank=True, null=True)),
                ('body', models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()))),
                ('attempts', models.IntegerField(db_default=0, help_text='Also the fence: only the attempt that took it may settle it.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('due_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('done_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True, db_default='')),
                ('error_code', models.CharField(blank=True, db_default='', max_length=16)),
                ('seen_by', models.CharField(blank=True, db_default='', help_text='Who has seen its permanent error.', max_length=80)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('done_at__isnull', True)), fields=['lane', 'due_at'], name='operation_lane'), models.Index(condition=models.Q(('done_at__isnull', True)), fields=['queue', 'due_at'], name='operation_due'), models.Index(condition=models.Q(('done_at__isnull', False)), fields=['done_at'], name='operation_done'), models.Index(condition=models.Q(('done_at__isnull', True), ('error_code', 'permanent')), fields=['id'], name='operation_permanent')],
                'constraints': [models.CheckConstraint(condition=models.Q(('error', ''), models.Q(('error_code', ''), _negated=True), _connector='OR'), name='operation_error_has_code'), models.CheckConstraint(condition=models.Q(('attempts__gte', 0)), name='operation_attempts')],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, NOT_APPEND_ONLY),
    ]
