"""Terraform states that a backend did not take, kept sealed until a person has settled them."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("claims", "0017_plan_outline"),
    ]

    operations = [
        migrations.CreateModel(
            name="RescuedState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("claim_id", models.BigIntegerField()),
                ("generation", models.BigIntegerField()),
                ("pool_id", models.BigIntegerField(blank=True, null=True)),
                ("member_id", models.BigIntegerField()),
                ("member", models.CharField(max_length=63)),
                ("size", models.BigIntegerField(db_default=0, default=0)),
                ("digest", models.BinaryField(blank=True, null=True)),
                ("file", models.FileField(blank=True, db_default="", default="", max_length=255, upload_to="")),
                ("noted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("kept_at", models.DateTimeField(blank=True, null=True)),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
                ("settled_by", models.CharField(blank=True, db_default="", default="", max_length=80)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "workspace",
                    models.ForeignKey(
                        blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to="claims.workspace"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(("settled_at__isnull", False)), fields=["settled_at"], name="rescued_state_settled"),
                    models.Index(condition=models.Q(("settled_at__isnull", True)), fields=["claim_id"], name="rescued_state_open"),
                ],
                "constraints": [models.UniqueConstraint(fields=("claim_id", "generation"), name="rescued_state_once")],
            },
        ),
    ]
