from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("claims", "0012_plan_mismatch")]

    operations = [
        migrations.AddIndex(
            model_name="source",
            index=models.Index(fields=["made_by"], include=["size"], name="source_made_by"),
        ),
    ]
