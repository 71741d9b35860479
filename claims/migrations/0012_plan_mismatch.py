"""A plan whose list of changes contradicts what its agent counts says so, and is not approved."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("claims", "0011_lifts")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="mismatch",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
