-- Returns the delay before the next attempt where each pause is twice the one before.
create or replace function relevo.retry_delay(attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, floor_ms bigint, chance float8)
  returns interval language sql immutable
  return relevo.retry_delay_by(2, attempts, base_ms, max_ms, jitter_ms, floor_ms, chance);

revoke all on function relevo.retry_delay from public;
