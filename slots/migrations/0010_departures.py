"""Slots that claims have left by evacuations. The hold of such a claim goes on."""

from django.db import migrations, models

MOVE = """
INSERT INTO slots_departure (generation, claim_id, current, member_id, left_slots)
SELECT e.generation, e.claim_id, c.generation, e.member_id, e.left_slots
FROM slots_evacuation e JOIN claims_claim c ON c.id = e.claim_id"""
UNDO = """
UPDATE slots_evacuation e SET left_slots = d.left_slots FROM slots_departure d
WHERE d.generation = e.generation"""


class Migration(migrations.Migration):
    dependencies = [("slots", "0009_quarantine"), ("claims", "0002_initial")]
    operations = [
        migrations.CreateModel(
            "Departure",
            [
                ("generation", models.BigIntegerField(primary_key=True, serialize=False)),
                ("claim_id", models.BigIntegerField()),
                ("current", models.BigIntegerField()),
                ("member_id", models.BigIntegerField()),
                ("left_slots", models.JSONField(default=dict)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["claim_id"], name="departure_of_claim"),
                    models.Index(fields=["member_id"], name="departure_from_member"),
                ]
            },
        ),
        migrations.RunSQL(MOVE, UNDO),
        migrations.RemoveField("Evacuation", "left_slots"),
    ]
