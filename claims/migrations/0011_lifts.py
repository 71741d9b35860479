"""A freeze that is to come can be lifted ahead, once."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("claims", "0010_source_users"),
        ("pools", "0012_cordon_kept"),
    ]

    operations = [
        migrations.CreateModel(
            name="Lift",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("by", models.CharField(max_length=80)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "pool",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="lifts", to="pools.pool"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("pool", "starts_at"), name="lift_once")],
            },
        ),
    ]
