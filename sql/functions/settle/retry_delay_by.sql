-- Returns the delay before the next attempt: base multiplied per attempt, capped, jittered, never below the provider's Retry-After.
create or replace function relevo.retry_delay_by(multiplier float8, attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, floor_ms bigint, chance float8)
  returns interval language sql immutable
  return greatest(least(base_ms * multiplier ^ least(greatest(attempts, 1) - 1, 40), max_ms) + jitter_ms * chance, floor_ms)
         * interval '1 millisecond';

revoke all on function relevo.retry_delay_by from public;
