"""Parts of claims, and the targets of their backends."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

EMPTY = models.Value({}, models.JSONField())


def key(to: str, *, db_index: bool = False, related_name: str = "+") -> models.ForeignKey:
    return models.ForeignKey(
        db_index=db_index, on_delete=django.db.models.deletion.CASCADE, related_name=related_name, to=to
    )


class Migration(migrations.Migration):
    dependencies = [("claims", "0021_owner_index"), ("pools", "0015_listeners")]
    operations = [
        migrations.CreateModel(
            "ClaimPart",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.SmallIntegerField()),
                ("kind", models.CharField(max_length=32)),
                ("pools", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), size=None)),
                ("count", models.SmallIntegerField()),
                ("first", models.SmallIntegerField()),
                ("options", models.JSONField(db_default=EMPTY, default=dict)),
                ("claim", key("claims.claim", related_name="parts")),
            ],
            {"constraints": [models.UniqueConstraint(fields=("claim", "index"), name="claim_part_once")]},
        ),
        migrations.CreateModel(
            "BackendTarget",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("target", models.CharField(max_length=80)),
                ("pool", key("pools.pool")),
                ("claim", key("claims.claim", db_index=True)),
            ],
            {"constraints": [models.UniqueConstraint(fields=("pool", "target"), name="backend_target_once")]},
        ),
        migrations.CreateModel(
            "BackendConflict",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("target", models.CharField(max_length=80)),
                ("pool", key("pools.pool")),
                ("claim", key("claims.claim")),
            ],
            {"constraints": [models.UniqueConstraint(fields=("claim", "pool", "target"), name="backend_conflict_once")]},
        ),
    ]
