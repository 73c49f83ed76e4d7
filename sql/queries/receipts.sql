-- name: claim_awaited
-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one.
select * from relevo.claim_awaited(%(token)s, %(worker_id)s, %(project)s, %(limit)s, %(now)s, %(shard_index)s, %(shard_count)s, %(lease_ms)s);

-- name: settle_confirmed
-- Confirms all that a claim of receipts holds, the usual answer, and ends it; null if it does not hold what was asked for.
select relevo.settle_confirmed(%(token)s, %(asked)s, %(now)s);

-- name: settle_receipts
-- Writes what receipts say of what the claim holds, and ends it; returns how many became what.
select * from relevo.settle_receipts(
  %(token)s, %(days)s::date[], %(ids)s::bigint[], %(kinds)s::int[], %(statuses)s::text[], %(spent)s::int[], %(paced)s::boolean[], %(codes)s::text[],
  %(messages)s::text[], %(floors_ms)s::bigint[], %(max_attempts)s, %(retry_base_ms)s, %(retry_max_ms)s, %(retry_jitter_ms)s, %(receipt_ms)s,
  %(give_up_ms)s, %(now)s);
