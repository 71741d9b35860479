"""Variables and environment of tasks are sealed at rest, those of tasks that are there, too."""

import json
import sys

from django.db import migrations, models

from claims.tasks.task_body import open_body, seal_body
from project.kernel.errors import BerthError

BATCH = 500
NEXT = """
SELECT claim_id, body::text FROM claims_task
WHERE claim_id > %s AND sealed IS NULL AND (body ? 'variables' OR body ? 'env') ORDER BY claim_id LIMIT %s"""
WRITE = "UPDATE claims_task SET body = %s::jsonb, sealed = %s WHERE claim_id = %s AND sealed IS NULL"


def seal_tasks(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        last = 0
        while True:
            cursor.execute(NEXT, [last, BATCH])
            rows = cursor.fetchall()
            if not rows:
                return
            for claim, text in rows:
                try:
                    body, sealed = seal_body(json.loads(text))
                except BerthError as error:  # tasks stay readable as they are
                    print(f"Tasks are not sealed: {error.detail} {error.way_out} Then run: manage.py reseal", file=sys.stderr)
                    return
                if sealed is not None:
                    cursor.execute(WRITE, [json.dumps(body), sealed, claim])
            last = rows[-1][0]


def open_tasks(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT claim_id, body::text, sealed FROM claims_task WHERE sealed IS NOT NULL ORDER BY claim_id")
        for claim, text, sealed in cursor.fetchall():
            values = [json.dumps(open_body(json.loads(text), sealed)), claim]
            cursor.execute("UPDATE claims_task SET body = %s::jsonb, sealed = NULL WHERE claim_id = %s", values)


class Migration(migrations.Migration):
    dependencies = [("claims", "0013_source_quota")]

    operations = [
        migrations.AddField(model_name="task", name="sealed", field=models.BinaryField(blank=True, null=True)),
        migrations.RunPython(seal_tasks, open_tasks),
    ]
