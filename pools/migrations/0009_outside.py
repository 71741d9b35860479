"""What providers say: the error of the last look at a pool, what a member waits for outside, and whose our things there are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("pools", "0008_roll"),
    ]

    operations = [
        migrations.AddField(
            model_name="member",
            name="is_ending",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="member",
            name="outside",
            field=models.CharField(blank=True, db_default="", default="", max_length=320),
        ),
        migrations.AddField(
            model_name="pool",
            name="provider_error",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="pool",
            name="provider_error_code",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="pool",
            name="provider_error_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.IntegerField(default=1, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="installation_once")],
            },
        ),
    ]
