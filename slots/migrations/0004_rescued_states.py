"""Terraform states of which only the agent of a member has a copy."""

import django.db.models.functions.datetime
from django.db import migrations, models


# What only its agent has goes with a member: the last guard, for whoever does not look before.
BODY = """
CREATE OR REPLACE FUNCTION member_is_empty() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF EXISTS (SELECT FROM slots_slot WHERE member_id = NEW.id AND (is_open OR state NOT IN ('idle', 'retired'))) THEN
    RAISE EXCEPTION 'member %: has open or occupied slots', NEW.id USING ERRCODE = 'BR001', CONSTRAINT = TG_NAME;
  END IF;{more}
  RETURN NEW;
END $$;
"""
MORE = """
  IF EXISTS (SELECT FROM slots_unsavedstate WHERE member_id = NEW.id) THEN
    RAISE EXCEPTION 'member %: has a state that the server lacks', NEW.id USING ERRCODE = 'BR001', CONSTRAINT = TG_NAME;
  END IF;"""


class Migration(migrations.Migration):
    dependencies = [
        ("slots", "0003_sound"),
    ]

    operations = [
        migrations.CreateModel(
            name="UnsavedState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("member_id", models.BigIntegerField()),
                ("claim_id", models.BigIntegerField()),
                ("generation", models.BigIntegerField()),
                ("noted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["member_id"], name="unsaved_state_of_member")],
                "constraints": [models.UniqueConstraint(fields=("claim_id", "generation"), name="unsaved_state_once")],
            },
        ),
        migrations.RunSQL(BODY.replace("{more}", MORE), BODY.replace("{more}", "")),
    ]
