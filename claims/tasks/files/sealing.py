"""Encrypt logs, files and bodies of tasks with the current key, for `manage.py reseal`."""

import json
from collections.abc import Iterator

from django.db import transaction

from claims.tasks.files.sealed_files import list_names, list_shelves, owner_of, reseal_file
from claims.tasks.task_body import open_body, seal_body
from project.kernel.db.sql import run
from project.kernel.security.encryption import key_header, register_resealer, seal, unseal

BATCH = 200

NEXT = """
SELECT claim_id, generation, seq, CASE
  WHEN substring(data FROM 1 FOR length(%(head)s)) <> %(head)s THEN data END AS data
FROM claims_logchunk
WHERE (claim_id, generation, seq) > (%(claim)s, %(generation)s, %(seq)s)
  ORDER BY claim_id, generation, seq LIMIT {n}"""
WRITE = """
UPDATE claims_logchunk SET data = %(data)s WHERE claim_id = %(claim)s
  AND generation = %(generation)s AND seq = %(seq)s"""

# No other code changes a task, so the update needs no check.
NEXT_TASKS = """
SELECT claim_id, body::text AS body, sealed FROM claims_task
WHERE claim_id > %(last)s AND CASE WHEN sealed IS NULL THEN body ? 'variables' OR body ? 'env'
  ELSE substring(sealed FROM 1 FOR length(%(head)s)) <> %(head)s END
ORDER BY claim_id LIMIT {n}"""
WRITE_TASK = (
    "UPDATE claims_task SET body = %(body)s::jsonb, sealed = %(sealed)s "
    "WHERE claim_id = %(claim)s RETURNING 1"
)

IN_RUN = """
UPDATE claims_run SET facts = jsonb_set(facts, '{{files,{kind}}}', to_jsonb(%(new)s::text))
WHERE claim_id = %(claim)s AND facts #>> '{{files,{kind}}}' = %(old)s RETURNING 1"""
IN_PLAN = (
    "UPDATE claims_plan SET {field} = %(new)s WHERE claim_id = %(claim)s "
    "AND {field} = %(old)s RETURNING 1"
)
RENAME = {
    "plan": (IN_RUN.format(kind="plan"), IN_PLAN.format(field="file")),
    "json": (IN_RUN.format(kind="json"), IN_PLAN.format(field="json_file")),
    "outline": (IN_RUN.format(kind="outline"), IN_PLAN.format(field="outline_file")),
    "state": (
        (
            "UPDATE claims_rescuedstate SET file = %(new)s WHERE claim_id = %(claim)s "
            "AND file = %(old)s RETURNING 1"
        ),
    ),
    "source": (
        (
            "UPDATE claims_source SET file = %(new)s WHERE digest = decode(%(digest)s, 'hex') "
            "AND file = %(old)s RETURNING 1"
        ),
    ),
}


@register_resealer("logs")
def reseal_logs() -> Iterator[int]:
    at = (0, 0, 0)
    while rows := run(
        NEXT.format(n=BATCH),
        {"head": key_header(), "claim": at[0], "generation": at[1], "seq": at[2]},
        prepare=False,
    ):
        old = [row for row in rows if row.data is not None]
        for row in old:  # no other code changes a chunk, and a deleted chunk is no loss
            values = {
                "data": seal(unseal(row.data)),
                "claim": row.claim_id,
                "generation": row.generation,
                "seq": row.seq,
            }
            run(WRITE, values, prepare=False)
        yield len(old)
        at = (rows[-1].claim_id, rows[-1].generation, rows[-1].seq)


@register_resealer("tasks")
def reseal_tasks() -> Iterator[int]:
    """Also encrypts the values of tasks of older releases."""
    last = 0
    while rows := run(
        NEXT_TASKS.format(n=BATCH), {"head": key_header(), "last": last}, prepare=False
    ):
        done = 0
        for row in rows:
            body, sealed = seal_body(open_body(json.loads(row.body), row.sealed))
            if sealed is not None:
                values = {"body": json.dumps(body), "sealed": sealed, "claim": row.claim_id}
                done += len(run(WRITE_TASK, values, prepare=False))
        yield done
        last = rows[-1].claim_id


@register_resealer("files")
def reseal_files() -> Iterator[int]:
    for shelf in list_shelves():
        yield sum(reseal_file(name, rename_file) for name in list_names(shelf))


def rename_file(old: str, new: str) -> bool:
    """Renames a file in all rows. The run comes first: `record_result` locks the run and either
    reads the new name or has already added its plan.
    """
    kind, owner = old.partition("/")[0], owner_of(old)
    values = {
        "old": old,
        "new": new,
        "digest": owner,
        "claim": int(owner.partition("-")[0]) if kind != "source" else 0,
    }
    with transaction.atomic():
        return sum(len(run(text, values, prepare=False)) for text in RENAME[kind]) > 0
