"""What pages show of a plan is made once, when it comes in. Plans that are there get it when they are read."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("claims", "0016_passed")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="outline_file",
            field=models.FileField(blank=True, db_default="", default="", max_length=255, upload_to=""),
        ),
    ]
