from django.db import migrations, models

EMPTY = models.Value([], models.JSONField())


class Migration(migrations.Migration):
    dependencies = [("pools", "0014_label_selectors")]
    operations = [
        migrations.AddField("member", "addresses", models.JSONField(db_default=EMPTY, default=list)),
        migrations.AddField("member", "foreign_listeners", models.JSONField(db_default=EMPTY, default=list)),
    ]
