-- Statements of the agents' API: orders often, the other statements once a task.

-- _mark: the orders of a member as one number. The number changes with every hand-over to and from the member, when the member is to leave,
-- and with its token and incarnation.
(SELECT coalesce(bit_xor(hashint8extended(s.generation, hashint8extended(s.id, hashtext(s.state)))), 0) FROM slots_slot s
    WHERE s.member_id = m.id AND s.state IN ('held', 'reserved', 'draining'))
  # CASE WHEN m.is_leaving OR m.state = 'deleting' THEN 1 ELSE 0 END
  # hashtextextended(m.token_hash || '/' || m.previous_token_hash || '/' || m.state, m.incarnation)

-- orders: the slots with work that a member runs, ends or keeps for later. At least one row.
SELECT ({_mark}) AS mark, m.is_leaving OR m.state = 'deleting' AS is_leaving,
  s.id AS slot, s.lane, s.number, s.state, s.generation, s.claim_id AS claim, c.step, c.spec->>'task' AS task
FROM pools_member m
LEFT JOIN slots_slot s ON s.member_id = m.id AND s.state IN ('held', 'reserved', 'draining')
LEFT JOIN claims_claim c ON c.id = s.claim_id AND c.generation = s.generation AND EXISTS (SELECT FROM claims_task t WHERE t.claim_id = c.id)
WHERE m.id = %(member)s ORDER BY s.id

-- changed: the waiting members whose orders no longer have the given mark.
SELECT t.id FROM unnest(%(members)s::bigint[], %(marks)s::bigint[]) AS t(id, mark) LEFT JOIN pools_member m ON m.id = t.id
WHERE m.id IS NULL OR t.mark <> ({_mark})

-- record_heartbeats: record a heartbeat of many members. Their last load stays.
INSERT INTO pools_heartbeat AS h (member_id, incarnation, at)
SELECT m.id, m.incarnation, now() FROM unnest(%(members)s::bigint[], %(incarnations)s::int[]) AS t(id, incarnation)
JOIN pools_member m ON m.id = t.id AND m.incarnation = t.incarnation AND m.state IN ('creating', 'ready', 'offline') ORDER BY m.id
ON CONFLICT (member_id) DO UPDATE SET incarnation = EXCLUDED.incarnation, at = EXCLUDED.at

-- hold^: the task of a claim that is bound on a slot of the member in this generation.
SELECT c.id, c.generation, c.step, c.state, c.requested_by, c.approved_plan_id, c.spec->>'task' AS task, w.name AS workspace,
  s.id AS slot, s.lane, s.number, t.executor, t.body::text AS body, t.sealed, src.digest AS source_digest, src.file AS source_file, t.source_id,
  r.boot, r.ended_at IS NOT NULL AS is_over, r.claim_id IS NOT NULL AS is_started
FROM slots_slot s JOIN claims_claim c ON c.id = s.claim_id AND c.generation = s.generation
JOIN claims_task t ON t.claim_id = c.id LEFT JOIN claims_source src ON src.id = t.source_id LEFT JOIN claims_workspace w ON w.id = c.workspace_id
LEFT JOIN claims_run r ON r.claim_id = c.id AND r.generation = c.generation
WHERE s.claim_id = %(claim)s AND s.member_id = %(member)s AND s.generation = %(generation)s AND s.state = 'held' AND c.state = 'bound'

-- was_here$: whether the member ever held this generation of the claim.
SELECT EXISTS (SELECT FROM claims_run WHERE claim_id = %(claim)s AND generation = %(generation)s AND member_id = %(member)s)
  OR EXISTS (SELECT FROM kernel_event WHERE claim_id = %(claim)s AND generation = %(generation)s AND member_id = %(member)s)

-- is_there$: whether the claim exists.
SELECT EXISTS (SELECT FROM claims_claim WHERE id = %(claim)s)

-- run_of^: the run of a generation.
SELECT member_id, step, boot, log_next, ended_at IS NOT NULL AS is_over FROM claims_run WHERE claim_id = %(claim)s AND generation = %(generation)s

-- keep_files^: store the names of the files of a run until its result names them. Returns the earlier names, whose files can be deleted.
WITH r AS (
  SELECT facts->'files' AS before FROM claims_run
  WHERE claim_id = %(claim)s AND generation = %(generation)s AND ended_at IS NULL FOR NO KEY UPDATE)
UPDATE claims_run SET facts = facts || jsonb_build_object('files', coalesce(facts->'files', '{}'::jsonb) || %(files)s::jsonb)
FROM r WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING coalesce(r.before, '{}'::jsonb)::text AS before

-- plan_for^: the saved plan that a claim applies: the approved plan, else its current plan.
SELECT id, digest, summary::text AS summary, facts::text AS facts, file, size, member_id, generation FROM claims_plan
WHERE claim_id = %(claim)s AND (id = %(plan)s OR %(plan)s::bigint IS NULL AND NOT is_stale)

-- present^: the last heartbeat of a member, and whether a run of the member may still be active.
SELECT h.load->>'boot' AS boot, h.load->>'host' AS host, extract(epoch FROM now() - h.at)::float8 AS silent,
  EXISTS (SELECT FROM claims_run r WHERE r.member_id = h.member_id AND r.ended_at IS NULL)
    OR EXISTS (SELECT FROM slots_slot s WHERE s.member_id = h.member_id AND s.state = 'draining') AS is_busy
FROM pools_heartbeat h WHERE h.member_id = %(member)s AND h.incarnation = %(incarnation)s

-- open_runs: the runs of a member that have not ended.
SELECT claim_id, generation FROM claims_run WHERE member_id = %(member)s AND ended_at IS NULL

-- note_interrupt^: record the open operations of an interrupted program. No row if the member never started this generation.
WITH r AS (
  SELECT facts ? 'interrupt' AS is_known FROM claims_run
  WHERE claim_id = %(claim)s AND generation = %(generation)s AND member_id = %(member)s FOR NO KEY UPDATE)
UPDATE claims_run SET facts = facts || %(interrupt)s::jsonb
FROM r WHERE claim_id = %(claim)s AND generation = %(generation)s RETURNING r.is_known
