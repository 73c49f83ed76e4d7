-- name: claim_awaited
-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one.
select * from relevo.claim_awaited(%(token)s, %(worker_id)s, %(project)s, %(limit)s, %(now)s, %(shard_index)s, %(shard_count)s, %(lease_ms)s);

-- name: settle_confirmed
-- Confirms all that a claim of receipts holds, the usual answer, and ends it; null if it does not hold what was asked for.
select relevo.settle_confirmed(%(token)s, %(asked)s, %(now)s);

-- name: settle_receipts
-- Writes what receipts say of what the claim holds, and ends it; returns how many became what.
select * from relevo.settle_receipts(
  claim => %(token)s, of_days => %(days)s::date[], of_ids => %(ids)s::bigint[], kinds => %(kinds)s::int[], sort_statuses => %(statuses)s::text[],
  sort_spent => %(spent)s::int[], sort_paced => %(paced)s::boolean[], sort_codes => %(codes)s::text[], sort_messages => %(messages)s::text[],
  sort_floors_ms => %(floors_ms)s::bigint[], most_attempts => %(max_attempts)s, base_ms => %(retry_base_ms)s, max_ms => %(retry_max_ms)s,
  jitter_ms => %(retry_jitter_ms)s, receipt_ms => %(receipt_ms)s, give_up_ms => %(give_up_ms)s, given_at => %(now)s);
