"""A pool of very many slots opens and closes them in pieces: since when it has been at it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("pools", "0009_outside"),
    ]

    operations = [
        migrations.AddField(
            model_name="pool",
            name="unaligned_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
