"""What claims keep sealed, for `manage.py reseal`: logs and files."""

from collections.abc import Iterator

from django.db import transaction

from claims.runs.files import list_names, list_shelves, reseal_file, whose
from project.kernel.sql import run
from project.kernel.vault import head, reseals, seal, unseal

BATCH = 200

NEXT = """
SELECT claim_id, generation, seq, CASE WHEN substring(data FROM 1 FOR length(%(head)s)) <> %(head)s THEN data END AS data
FROM claims_logchunk
WHERE (claim_id, generation, seq) > (%(claim)s, %(generation)s, %(seq)s) ORDER BY claim_id, generation, seq LIMIT {n}"""
WRITE = """
UPDATE claims_logchunk SET data = %(data)s WHERE claim_id = %(claim)s AND generation = %(generation)s AND seq = %(seq)s"""

IN_RUN = """
UPDATE claims_run SET facts = jsonb_set(facts, '{{files,{kind}}}', to_jsonb(%(new)s::text))
WHERE claim_id = %(claim)s AND facts #>> '{{files,{kind}}}' = %(old)s RETURNING 1"""
IN_PLAN = "UPDATE claims_plan SET {field} = %(new)s WHERE claim_id = %(claim)s AND {field} = %(old)s RETURNING 1"
RENAME = {
    "plan": (IN_RUN.format(kind="plan"), IN_PLAN.format(field="file")),
    "json": (IN_RUN.format(kind="json"), IN_PLAN.format(field="json_file")),
    "source": ("UPDATE claims_source SET file = %(new)s WHERE digest = decode(%(digest)s, 'hex') AND file = %(old)s RETURNING 1",),
}


@reseals("logs")
def reseal_logs() -> Iterator[int]:
    at = (0, 0, 0)
    while rows := run(NEXT.format(n=BATCH), {"head": head(), "claim": at[0], "generation": at[1], "seq": at[2]}, prepare=False):
        old = [row for row in rows if row.data is not None]
        for row in old:  # nobody else changes a chunk; one that has gone meanwhile is no loss
            again = {"data": seal(unseal(row.data)), "claim": row.claim_id, "generation": row.generation, "seq": row.seq}
            run(WRITE, again, prepare=False)
        yield len(old)
        at = (rows[-1].claim_id, rows[-1].generation, rows[-1].seq)


@reseals("files")
def reseal_files() -> Iterator[int]:
    for shelf in list_shelves():
        yield sum(reseal_file(name, rename_file) for name in list_names(shelf))


def rename_file(old: str, new: str) -> bool:
    """In whatever row names it. The run first: whoever makes a plan of it locks it, and has the new name or has made the plan."""
    kind, who = old.partition("/")[0], whose(old)
    values = {"old": old, "new": new, "digest": who, "claim": int(who.partition("-")[0]) if kind != "source" else 0}
    with transaction.atomic():
        return sum(len(run(text, values, prepare=False)) for text in RENAME[kind]) > 0
