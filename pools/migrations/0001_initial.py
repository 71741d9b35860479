
import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('kernel', '0001_initial'),
        ('auth', '0012_alter_user_first_name_max_length'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Member',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63)),
                ('incarnation', models.IntegerField(db_default=1, default=1)),
                ('position', models.IntegerField(db_default=0, default=0)),
                ('external_id', models.CharField(blank=True, db_default='', default='', max_length=255)),
                ('ports', django.contrib.postgres.fields.ranges.IntegerRangeField(blank=True, null=True)),
                ('state', models.CharField(choices=[('creating', 'creating'), ('ready', 'ready'), ('offline', 'offline'), ('deleting', 'deleting'), ('gone', 'gone')], db_default='creating', default='creating', max_length=16)),
                ('is_owned', models.BooleanField(db_default=True, default=True)),
                ('is_cordoned', models.BooleanField(db_default=False, default=False)),
                ('is_leaving', models.BooleanField(db_default=False, default=False)),
                ('note', models.TextField(blank=True, db_default='', default='')),
                ('spec_digest', models.CharField(blank=True, db_default='', default='', max_length=64)),
                ('spec', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('labels', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('deletion_cost', models.IntegerField(db_default=0, default=0)),
                ('drain_until', models.DateTimeField(blank=True, null=True)),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('restarts', models.IntegerField(db_default=0, default=0)),
                ('token_hash', models.CharField(blank=True, db_default='', default='', max_length=64)),
                ('previous_token_hash', models.CharField(blank=True, db_default='', default='', max_length=64)),
                ('token_since', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Heartbeat',
            fields=[
                ('member', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='pools.member')),
                ('incarnation', models.IntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('load', models.JSONField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63)),
                ('provider', models.CharField(db_default='static', default='static', max_length=32)),
                ('state', models.CharField(choices=[('pending', 'pending'), ('active', 'active'), ('deleting', 'deleting'), ('gone', 'gone')], db_default='pending', default='pending', max_length=16)),
                ('queue', models.CharField(blank=True, db_default='', default='', max_length=32)),
                ('lanes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), default=list, size=None)),
                ('placement', models.CharField(db_default='pack', default='pack', max_length=16)),
                ('spec', models.JSONField(default=dict)),
                ('min_members', models.IntegerField(db_default=0, default=0)),
                ('max_members', models.IntegerField(db_default=10, default=10)),
                ('revision', models.IntegerField(db_default=1, default=1)),
                ('scale_requested_at', models.DateTimeField(blank=True, null=True)),
                ('absorb_until', models.DateTimeField(blank=True, null=True)),
                ('scaled_up_at', models.DateTimeField(blank=True, null=True)),
                ('scaled_down_at', models.DateTimeField(blank=True, null=True)),
                ('observed_at', models.DateTimeField(blank=True, null=True)),
                ('pin_count', models.IntegerField(blank=True, null=True)),
                ('pin_until', models.DateTimeField(blank=True, null=True)),
                ('pin_reason', models.TextField(blank=True, db_default='', default='')),
                ('unfrozen_until', models.DateTimeField(blank=True, null=True)),
                ('paused_until', models.DateTimeField(blank=True, null=True)),
                ('pause_reason', models.TextField(blank=True, db_default='', default='')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['active', 'deleting', 'gone', 'pending'])), name='pool_state_known'), models.UniqueConstraint(condition=models.Q(('state', 'gone'), _negated=True), fields=('name',), name='pool_name'), models.CheckConstraint(condition=models.Q(('min_members__gte', 0), ('min_members__lte', models.F('max_members'))), name='pool_limits')],
            },
        ),
        migrations.AddField(
            model_name='member',
            name='pool',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='members', to='pools.pool'),
        ),
        migrations.CreateModel(
            name='Grant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(max_length=16)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='auth.group')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to=settings.AUTH_USER_MODEL)),
                ('pool', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='pools.pool')),
            ],
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('seen_again', models.IntegerField(db_default=0, default=0)),
                ('inputs', models.JSONField()),
                ('delta', models.IntegerField()),
                ('reason', models.TextField()),
                ('chosen', models.JSONField(default=list)),
                ('spared', models.JSONField(default=list)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='pools.pool')),
            ],
        ),
        migrations.CreateModel(
            name='Sample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('is_hourly', models.BooleanField(db_default=False, default=False)),
                ('members', models.IntegerField()),
                ('slots', models.IntegerField()),
                ('held', models.IntegerField()),
                ('reserved', models.IntegerField()),
                ('waiting', models.IntegerField()),
                ('pool', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='pools.pool')),
            ],
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63)),
                ('ciphertext', models.BinaryField()),
                ('key_id', models.CharField(max_length=32)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='pools.pool')),
            ],
        ),
        migrations.CreateModel(
            name='Token',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('prefix', models.CharField(max_length=16)),
                ('hash', models.CharField(max_length=64)),
                ('scopes', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddIndex(
            model_name='member',
            index=models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at'], name='member_due'),
        ),
        migrations.AddConstraint(
            model_name='member',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['creating', 'deleting', 'gone', 'offline', 'ready'])), name='member_state_known'),
        ),
        migrations.AddConstraint(
            model_name='member',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'gone'), _negated=True), fields=('pool', 'name'), name='member_name'),
        ),
        migrations.AddConstraint(
            model_name='member',
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(condition=models.Q(('ports__isnull', False), models.Q(('external_id', ''), _negated=True), models.Q(('state', 'gone'), _negated=True)), expressions=[('external_id', '='), ('ports', '&&')], name='member_ports_apart'),
        ),
        migrations.AddConstraint(
            model_name='grant',
            constraint=models.CheckConstraint(condition=models.Q(('user__isnull', False), ('group__isnull', False), _connector='XOR'), name='grant_one_subject'),
        ),
        migrations.AddConstraint(
            model_name='grant',
            constraint=models.UniqueConstraint(fields=('user', 'group', 'pool', 'role'), name='grant_once', nulls_distinct=False),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['pool', '-last_at'], name='decision_latest'),
        ),
        migrations.AddConstraint(
            model_name='sample',
            constraint=models.UniqueConstraint(fields=('pool', 'at', 'is_hourly'), name='sample_once'),
        ),
        migrations.AddConstraint(
            model_name='secret',
            constraint=models.UniqueConstraint(fields=('pool', 'name'), name='secret_name'),
        ),
        migrations.AddConstraint(
            model_name='token',
            constraint=models.UniqueConstraint(fields=('hash',), name='token_hash'),
        ),
        migrations.AddConstraint(
            model_name='token',
            constraint=models.UniqueConstraint(condition=models.Q(('revoked_at__isnull', True)), fields=('user', 'name'), name='token_name'),
        ),
    ]
