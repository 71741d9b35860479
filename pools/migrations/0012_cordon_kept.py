"""A cordon is kept apart from a drain that closes the member, too: who ordered it and why are there again when the drain is taken back."""

from django.db import migrations, models

# Those that rest by a drain's wish are closed by nobody else, as far as is known.
KEEP = """
UPDATE pools_member SET cordon_by = 'system', cordon_note = note
WHERE is_cordoned AND state <> 'gone' AND (drain_until IS NULL OR is_leaving)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("pools", "0011_place"),
    ]

    operations = [
        migrations.AddField(
            model_name="member",
            name="cordon_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=80),
        ),
        migrations.AddField(
            model_name="member",
            name="cordon_note",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.RunSQL(KEEP, migrations.RunSQL.noop),
    ]
