-- needs relevo 0.2.0
-- An event of which all is over is not cancelled any more: it was said to be, although nothing was withdrawn.

-- Tells whether an end could change nothing of an event: nothing of it is left to send, to confirm, to find out, or to redrive.
create function relevo.is_finished(id_of_event bigint) returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from relevo.notification_events e where e.id = id_of_event and e.state = 'fanned' and e.ended_at is null)
     and not exists (select from (select f.status, f.deliveries from relevo.event_progress f where f.event_id = id_of_event
                                  union all
                                  select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = id_of_event) p
                      where p.status in ('pending', 'retryable', 'sent', 'failed', 'unknown')
                      group by p.status having sum(p.deliveries) <> 0)
$$;

-- Ends an event: nothing of it is sent any more. False if there is none, or it has ended or was finished before.
create or replace function relevo.cancel(event_id bigint, reason text default null) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select case when relevo.is_finished(event_id) then false else relevo.end_event(event_id, 'cancelled', reason) end $$;

revoke all on function relevo.is_finished(bigint) from public;
