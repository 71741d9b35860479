"""Files beside the database: I25 this process finds and can open the files that claims need."""

from collections.abc import Iterator
from contextlib import closing

from claims.tasks.files.sealed_files import split_pieces, storage
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.security.encryption import SealError, unseal

OPENED = 50  # newest files that are opened; of older files only the existence is checked

NEEDED = """
SELECT name, what FROM (
  SELECT p.file AS name, 'the saved plan of claim ' || c.id AS what, p.id AS at FROM claims_plan p
    JOIN claims_claim c ON c.id = p.claim_id
  WHERE c.state <> 'ended' AND NOT p.is_stale AND p.file <> ''
  UNION ALL
  SELECT p.json_file, 'the readable plan of claim ' || c.id, p.id FROM claims_plan p
    JOIN claims_claim c ON c.id = p.claim_id
  WHERE c.state <> 'ended' AND NOT p.is_stale AND p.json_file <> ''
  UNION ALL
  SELECT file, 'the rescued state of claim ' || claim_id, id FROM claims_rescuedstate
    WHERE settled_at IS NULL AND file <> ''
  UNION ALL
  SELECT s.file, 'the source of claim ' || min(c.id), max(c.id) FROM claims_source s
    JOIN claims_task t ON t.source_id = s.id
  JOIN claims_claim c ON c.id = t.claim_id WHERE c.state <> 'ended' GROUP BY s.file) x
ORDER BY at DESC LIMIT 1000"""


@check(
    "I25",
    "The files of plans and sources that claims need exist and can be opened",
    (
        "Without its saved plan an approved claim runs on no other member, and without its source "
        "a claim fails."
    ),
)
def find_missing_files() -> Iterator[Finding]:
    where = storage()
    for number, row in enumerate(run(NEEDED, prepare=False)):
        if not where.exists(row.name):
            way_out = (
                "Every machine that serves Berth needs the same storage (STORAGES['sealed']). If "
                "it is lost: plan again."
            )
            yield Finding(row.name, f"{row.what} is not in the storage of this process", way_out)
        elif number < OPENED and (why := _why_shut(row.name)):
            yield Finding(
                row.name,
                f"{row.what} can't be opened here: {why}",
                "Give every process the same BERTH_SEALING_KEYS.",
            )


def _why_shut(name: str) -> str:
    with closing(storage().open(name)) as file:
        first = next(split_pieces(file), b"")
    try:
        unseal(first)
    except SealError as error:
        return error.detail
    return ""
