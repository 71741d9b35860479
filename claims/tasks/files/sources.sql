-- Sources of tasks. Equal archives are stored once.

-- find^: an existing source. The new `used_at` keeps it from being deleted before its use.
UPDATE claims_source SET used_at = now(), users = CASE WHEN users ? %(by)s::text THEN users ELSE users || to_jsonb(%(by)s::text) END
WHERE digest = %(digest)s RETURNING id, file, size, files

-- find_own^: a source by its digest, for a user who has uploaded it or a claim in a pool that has used it. A digest is no secret.
UPDATE claims_source s SET used_at = now() WHERE digest = %(digest)s AND (made_by = %(by)s::text OR users ? %(by)s::text OR EXISTS (
  SELECT FROM claims_task t JOIN claims_claim c ON c.id = t.claim_id JOIN pools_pool p ON p.id = c.pool_id
  WHERE t.source_id = s.id AND p.name = ANY (%(pools)s::varchar[])))
RETURNING id

-- count_kept$: bytes of the sources of a user.
SELECT coalesce(sum(size), 0)::bigint AS bytes FROM claims_source WHERE made_by = %(by)s::text

-- add_source^: add a source whose file exists. If another call has added the same source, its file counts.
INSERT INTO claims_source AS s (digest, file, size, files, made_by, users)
VALUES (%(digest)s, %(file)s, %(size)s, %(files)s, %(made_by)s::text, jsonb_build_array(%(made_by)s::text))
ON CONFLICT (digest) DO UPDATE SET used_at = now(), users = CASE WHEN s.users ? %(made_by)s::text THEN s.users ELSE s.users || EXCLUDED.users END
RETURNING id, file, size, files

-- add_task: add the task of a claim in the transaction that creates the claim.
INSERT INTO claims_task (claim_id, executor, body, sealed, source_id)
VALUES (%(claim)s, %(executor)s, %(body)s::jsonb, %(sealed)s, %(source)s)

-- delete_unused: delete sources that no task names, some time after their last use.
DELETE FROM claims_source WHERE id IN (
  SELECT id FROM claims_source s WHERE used_at < now() - make_interval(secs => %(seconds)s)
    AND NOT EXISTS (SELECT FROM claims_task WHERE source_id = s.id) ORDER BY id LIMIT {n} FOR UPDATE SKIP LOCKED)
RETURNING id

-- known_plan_files: the names of files in plans, runs and rescued states of some claims.
-- @not_null name
SELECT file AS name FROM claims_plan WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT json_file FROM claims_plan WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT outline_file FROM claims_plan WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT facts #>> '{files,outline}' FROM claims_run WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT facts #>> '{files,plan}' FROM claims_run WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT facts #>> '{files,json}' FROM claims_run WHERE claim_id = ANY (%(claims)s::bigint[])
UNION SELECT file FROM claims_rescuedstate WHERE claim_id = ANY (%(claims)s::bigint[]) AND settled_at IS NULL

-- known_source_files: the names of the files of some sources.
-- @not_null name
SELECT file AS name FROM claims_source WHERE digest = ANY (%(digests)s::bytea[])
