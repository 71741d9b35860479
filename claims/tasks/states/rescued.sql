-- Terraform states that a backend did not take: rescued by an agent, uploaded, kept sealed until a person has settled them.

-- note_rescued: an agent says that it has one. Said again it is noted once.
INSERT INTO claims_rescuedstate (claim_id, generation, pool_id, workspace_id, member_id, member, size)
SELECT r.claim_id, r.generation, c.pool_id, c.workspace_id, r.member_id, r.member, %(size)s::bigint
FROM claims_run r JOIN claims_claim c ON c.id = r.claim_id
WHERE r.claim_id = %(claim)s AND r.generation = %(generation)s AND r.member_id = %(member)s AND r.step = 'apply'
ON CONFLICT (claim_id, generation) DO NOTHING RETURNING claim_id

-- find_rescued^: one, and whether only its agent has it. Its lock keeps a settle and an upload apart.
SELECT s.claim_id, s.generation, s.pool_id, s.workspace_id, s.member_id, s.file, s.size, s.settled_at, s.kept_at
FROM claims_rescuedstate s WHERE s.claim_id = %(claim)s AND s.generation = %(generation)s FOR NO KEY UPDATE

-- keep_rescued: the server has it from here on. No row: a person has given it up.
UPDATE claims_rescuedstate SET file = %(file)s, size = %(size)s, digest = %(digest)s, kept_at = now()
WHERE claim_id = %(claim)s AND generation = %(generation)s AND settled_at IS NULL RETURNING claim_id

-- told_before: states that only this member's agent has, as far as is known, of applies that an earlier start of the agent ran.
SELECT u.claim_id, u.generation FROM slots_unsavedstate u
LEFT JOIN claims_run r ON r.claim_id = u.claim_id AND r.generation = u.generation
WHERE u.member_id = %(member)s AND (r.boot IS NULL OR r.boot <> %(boot)s)

-- settle_rescued: a person has said what became of the workspace: its states are not needed any more.
UPDATE claims_rescuedstate SET settled_at = now(), settled_by = %(by)s, reason = %(reason)s
WHERE workspace_id = %(workspace)s AND settled_at IS NULL RETURNING claim_id, generation, file, pool_id, member_id

-- discard_rescued: one of them.
UPDATE claims_rescuedstate SET settled_at = now(), settled_by = %(by)s, reason = %(reason)s
WHERE claim_id = %(claim)s AND generation = %(generation)s AND settled_at IS NULL RETURNING claim_id, generation, file, pool_id, member_id

-- _columns: of a rescued state, with where it is.
s.claim_id, s.generation, s.pool_id, s.workspace_id, w.name AS workspace, s.member_id, s.member, s.size, s.digest, s.file, s.noted_at,
  s.kept_at, s.settled_at, EXISTS (
    SELECT FROM slots_unsavedstate u WHERE u.claim_id = s.claim_id AND u.generation = s.generation) AS is_on_agent

-- of_claim: all of a claim.
SELECT {_columns} FROM claims_rescuedstate s LEFT JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.claim_id = %(claim)s ORDER BY s.generation

-- of_workspaces: those that nobody has settled, of some workspaces.
-- @not_null workspace_id
SELECT {_columns} FROM claims_rescuedstate s JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.workspace_id = ANY (%(workspaces)s::bigint[]) AND s.settled_at IS NULL ORDER BY s.claim_id, s.generation

-- unsettled: all that nobody has settled.
SELECT {_columns} FROM claims_rescuedstate s LEFT JOIN claims_workspace w ON w.id = s.workspace_id
WHERE s.settled_at IS NULL ORDER BY s.claim_id, s.generation LIMIT {n}

-- delete_settled: long after they were settled; their files went then.
DELETE FROM claims_rescuedstate WHERE id IN (
  SELECT id FROM claims_rescuedstate WHERE settled_at < now() - make_interval(secs => %(days)s::float8 * 86400) ORDER BY id LIMIT {n} FOR UPDATE SKIP LOCKED)
RETURNING id
