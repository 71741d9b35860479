-- Plans that wait for their approval.

-- count_pending$: the claims whose plan waits, in the pools of the reader (null: in all pools). Every page counts them.
SELECT count(*)::int FROM claims_claim WHERE state IN ('reserved', 'parked') AND (%(pools)s::bigint[] IS NULL OR pool_id = ANY (%(pools)s::bigint[]))
