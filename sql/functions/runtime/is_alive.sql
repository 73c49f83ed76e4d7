-- Returns whether a worker is alive: it did not stop, and was heard of within its lease. It is inlined.
create or replace function relevo.is_alive(w relevo.workers, at timestamptz default null) returns boolean
  language sql stable parallel safe
  return w.stopped_at is null and w.lost_at is null and w.last_seen_at + w.lease_ms * interval '1 millisecond' > coalesce(at, now());

revoke all on function relevo.is_alive from public;
