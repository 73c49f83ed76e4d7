-- Returns whether a worker that lives was not seen when it should have been, three times in a row; one of 0.3, which does not announce that, within half its
-- lease. It is inlined.
create or replace function relevo.is_late(w relevo.workers) returns boolean
  language sql stable parallel safe
  return case when w.next_beat_at > w.last_seen_at then w.last_seen_at + 3 * (w.next_beat_at - w.last_seen_at)
              else w.last_seen_at + w.lease_ms / 2 * interval '1 millisecond' end < now();

revoke all on function relevo.is_late from public;
