-- Terraform states that a backend did not accept: kept by the agent, uploaded, and stored encrypted until the workspace is settled.

-- note_rescued: record that an agent has a state. A repeated report adds no row.
INSERT INTO claims_rescuedstate (claim_id, generation, pool_id, workspace_id, member_id, member, size)
SELECT r.claim_id, r.generation, c.pool_id, c.workspace_id, r.member_id, r.member, %(size)s::bigint
FROM claims_run r JOIN claims_claim c ON c.id = r.claim_id
WHERE r.claim_id = %(claim)s AND r.generation = %(generation)s AND r.member_id = %(member)s AND r.step = 'apply'
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING claim_id

-- find_rescued^: lock a state. The lock serialises a settle and an upload.
SELECT s.claim_id, s.generation, s.pool_id, s.workspace_id, s.member_id, s.file, s.size, s.settled_at, s.kept_at
FROM claims_rescuedstate s WHERE s.claim_id = %(claim)s AND s.generation = %(generation)s FOR NO KEY UPDATE

-- keep_rescued: record the stored file. No row if the state was given up.
UPDATE claims_rescuedstate SET file = %(file)s, size = %(size)s, digest = %(digest)s, kept_at = now()
WHERE claim_id = %(claim)s AND generation = %(generation)s AND settled_at IS NULL RETURNING claim_id

-- known_before: states that only this member's agent has, of applies that an earlier start of the agent ran.
SELECT u.claim_id, u.generation FROM slots_unsavedstate u
LEFT JOIN claims_run r ON r.claim_id = u.claim_id AND r.generation = u.generation
WHERE u.member_id = %(member)s AND (r.boot IS NULL OR r.boot <> %(boot)s)

-- settle_rescued: end the states of a settled workspace.
UPDATE claims_rescuedstate SET settled_at = now(), settled_by = %(by)s, reason = %(reason)s
WHERE workspace_id = %(workspace)s AND settled_at IS NULL RETURNING claim_id, generation, file, pool_id, member_id

-- discard_rescued: end one state.
UPDATE claims_rescuedstate SET settled_at = now(), settled_by = %(by)s, reason = %(reason)s
WHERE claim_id = %(claim)s AND generation = %(generation)s AND settled_at IS NULL RETURNING claim_id, generation, file, pool_id, member_id

-- _columns: a rescued state, and whether only its agent has it.
s.claim_id, s.generation, s.pool_id, s.workspace_id, w.name AS workspace, s.member_id, s.member, s.size, s.digest, s.file, s.noted_at,
  s.kept_at, s.settled_at, EXISTS (
    SELECT FROM slots_unsavedstate u WHERE u.claim_id = s.claim_id AND u.generation = s.generation) AS is_on_agent

-- of_claim: all states of a claim.
SELECT {_columns} FROM claims_rescuedstate s LEFT JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.claim_id = %(claim)s ORDER BY s.generation

-- of_workspaces: the unsettled states of some workspaces.
-- @not_null workspace_id
SELECT {_columns} FROM claims_rescuedstate s JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.workspace_id = ANY (%(workspaces)s::bigint[]) AND s.settled_at IS NULL ORDER BY s.claim_id, s.generation

-- unsettled: the unsettled states.
SELECT {_columns} FROM claims_rescuedstate s LEFT JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.settled_at IS NULL ORDER BY s.claim_id, s.generation LIMIT {n}

-- delete_settled: delete rows that were settled long ago. Their files were deleted at that time.
DELETE FROM claims_rescuedstate WHERE id IN (
  SELECT id FROM claims_rescuedstate WHERE settled_at < now() - make_interval(secs => %(days)s::float8 * 86400) ORDER BY id LIMIT {n} FOR UPDATE SKIP LOCKED)
RETURNING id
