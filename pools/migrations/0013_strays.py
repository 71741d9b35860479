from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pools", "0012_cordon_kept")]
    operations = [
        migrations.AddField(
            "pool", "strays", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)
        ),
    ]
