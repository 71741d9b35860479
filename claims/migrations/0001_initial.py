
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('by_user', models.CharField(max_length=80)),
                ('is_yes', models.BooleanField()),
                ('comment', models.TextField(blank=True, db_default='', default='')),
                ('via', models.CharField(blank=True, db_default='', default='', max_length=16)),
                ('link', models.UUIDField(blank=True, null=True)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('owner', models.CharField(blank=True, db_default='', default='', max_length=160)),
                ('requested_by', models.CharField(blank=True, db_default='', default='', max_length=80)),
                ('key', models.CharField(blank=True, max_length=120, null=True)),
                ('body_digest', models.BinaryField(blank=True, null=True)),
                ('attempts', models.SmallIntegerField(db_default=0, default=0)),
                ('notified_at', models.DateTimeField(blank=True, null=True)),
                ('rank', models.SmallIntegerField(db_default=100, default=100)),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('blocked', 'blocked'), ('bound', 'bound'), ('reserved', 'reserved'), ('parked', 'parked'), ('ended', 'ended')], db_default='waiting', default='waiting', max_length=16)),
                ('outcome', models.CharField(blank=True, db_default='', default='', max_length=16)),
                ('size', models.SmallIntegerField(db_default=1, default=1)),
                ('generation', models.BigIntegerField(db_default=0, default=0)),
                ('named_generation', models.BigIntegerField(db_default=0, default=0)),
                ('step', models.CharField(blank=True, db_default='', default='', max_length=8)),
                ('is_serial', models.BooleanField(db_default=False, default=False)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('bound_at', models.DateTimeField(blank=True, null=True)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('spec', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('backend', models.JSONField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='ClaimSet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('replicas', models.IntegerField()),
                ('max_surge', models.IntegerField(db_default=1, default=1)),
                ('template', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('state', models.CharField(choices=[('active', 'active'), ('deleting', 'deleting')], db_default='active', default='active', max_length=16)),
            ],
        ),
        migrations.CreateModel(
            name='LogChunk',
            fields=[
                ('pk', models.CompositePrimaryKey('claim_id', 'generation', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('claim_id', models.BigIntegerField()),
                ('generation', models.BigIntegerField()),
                ('seq', models.IntegerField()),
                ('text', models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('generation', models.BigIntegerField()),
                ('digest', models.BinaryField()),
                ('summary', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('file', models.FileField(blank=True, db_default='', default='', max_length=255, upload_to='')),
                ('is_stale', models.BooleanField(db_default=False, default=False)),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Shape',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.BinaryField()),
                ('pools', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), size=None)),
                ('kind', models.CharField(max_length=32)),
                ('lanes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), default=list, size=None)),
                ('size', models.SmallIntegerField(db_default=1, default=1)),
                ('terms', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('is_simple', models.BooleanField(db_default=True, default=True)),
                ('wait_reason', models.JSONField(blank=True, null=True)),
                ('tried_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Workspace',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('locked_at', models.DateTimeField(blank=True, null=True)),
                ('locked_by', models.CharField(blank=True, db_default='', default='', max_length=80)),
                ('lock_reason', models.TextField(blank=True, db_default='', default='')),
            ],
        ),
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('claim', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='claims.claim')),
                ('generation', models.BigIntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
