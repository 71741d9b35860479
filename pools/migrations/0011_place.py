"""Where the things outside of a pool's members are, so that another place under the same name is not taken for it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("pools", "0010_unaligned"),
    ]

    operations = [
        migrations.AddField(
            model_name="pool",
            name="place",
            field=models.CharField(blank=True, db_default="", default="", max_length=255),
        ),
    ]
