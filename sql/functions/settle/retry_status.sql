-- Returns what becomes of a delivery that is to be tried again: its attempts may be used up, or its deadline may pass before.
create or replace function relevo.retry_status(paced boolean, attempts int, max_attempts int, retry_at timestamptz, deadline_at timestamptz)
  returns text language sql immutable
  return case when paced and attempts >= max_attempts then 'failed'
              when retry_at >= deadline_at then 'expired'
              when attempts = 0 then 'pending'
              else 'retryable' end;

revoke all on function relevo.retry_status from public;
