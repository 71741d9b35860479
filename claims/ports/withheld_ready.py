"""Claims whose ports are ready as the provider reported them last, although a backend is withheld:
the provider has not removed the target yet. Long polls ask for claims that READY_CLAIMS has found.
"""

import json
from collections.abc import Collection
from functools import lru_cache

from claims.allocation.api.long_poll import register_ready_check
from claims.allocation.requests.pool_facts import PoolFacts
from claims.ports.ports_sql import statements
from claims.ports.use_reader import explain_withheld
from pools.lifecycle.selectors import read_stored
from project.kernel.http.long_poll import Connection

BACKENDS = """
SELECT DISTINCT c.id, p.id, p.name, p.revision, p.spec::text, c.backend->>'ip',
  (c.backend->'ports'->>s.ordinal::int)::int, other.id IS NOT NULL,
  coalesce(part.options->>'certificate', '')
FROM claims_claim c JOIN slots_slot s ON s.claim_id = c.id JOIN pools_pool p ON p.id = s.pool_id
{_part}
{_other}
WHERE c.id = ANY (%s::bigint[])"""
QUERY = statements.insert_fragments(BACKENDS)


@register_ready_check
async def find_withheld(connection: Connection, claims: Collection[int]) -> Collection[int]:
    """Those of the claims that have a withheld backend."""
    cursor = await connection.execute(QUERY, [list(claims)], prepare=True)
    return {
        claim
        for claim, *facts, ip, port, is_of_other, certificate in await cursor.fetchall()
        if is_of_other or explain_withheld(ip, port, _read_pool(*facts), certificate)
    }


@lru_cache(maxsize=64)
def _read_pool(pool_id: int, name: str, revision: int, spec: str) -> PoolFacts:
    provider = str(json.loads(spec).get("provider", {}).get("kind", ""))
    return PoolFacts(pool_id, name, revision, "", "", provider, read_stored(name, spec))
