"""Claims whose ports are ready as the provider reported them last, although a backend is withheld:
the provider has not removed the target yet. Long polls ask for claims that READY_CLAIMS has found.
"""

import json
from collections.abc import Collection
from functools import lru_cache

from claims.allocation.api.long_poll import register_ready_check
from claims.allocation.requests.pool_facts import PoolFacts
from claims.ports.use_reader import explain_withheld
from pools.lifecycle.selectors import read_stored
from project.kernel.http.long_poll import Connection

# `_other` and `_part` in statements.sql have the same rules.
BACKENDS = """
SELECT DISTINCT c.id, p.id, p.name, p.revision, p.spec::text, c.backend->>'ip',
  (c.backend->'ports'->>s.ordinal::int)::int,
  EXISTS (SELECT FROM jsonb_array_elements_text(c.backend->'keys'->s.ordinal::int) AS k(target)
    JOIN claims_backendtarget b
      ON b.pool_id = s.pool_id AND b.target = k.target AND b.claim_id <> c.id
    JOIN claims_claim o ON o.id = b.claim_id AND o.state IN ('bound', 'reserved')),
  coalesce((SELECT options->>'certificate' FROM claims_claimpart
    WHERE claim_id = c.id AND s.ordinal >= first AND s.ordinal < first + count LIMIT 1), '')
FROM claims_claim c JOIN slots_slot s ON s.claim_id = c.id JOIN pools_pool p ON p.id = s.pool_id
WHERE c.id = ANY (%s::bigint[])"""


@register_ready_check
async def find_withheld(connection: Connection, claims: Collection[int]) -> Collection[int]:
    """Those of the claims that have a withheld backend."""
    cursor = await connection.execute(BACKENDS, [list(claims)], prepare=True)
    return {
        claim
        for claim, *facts, ip, port, is_of_other, certificate in await cursor.fetchall()
        if is_of_other or explain_withheld(ip, port, _read_pool(*facts), certificate)
    }


@lru_cache(maxsize=64)
def _read_pool(pool_id: int, name: str, revision: int, spec: str) -> PoolFacts:
    provider = str(json.loads(spec).get("provider", {}).get("kind", ""))
    return PoolFacts(pool_id, name, revision, "", "", provider, read_stored(name, spec))
