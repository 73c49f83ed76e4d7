-- Returns whether ending an event would change nothing: nothing of it is left to send, confirm, find out or redrive,
-- and no digest is to come that may tell it.
create or replace function relevo.is_finished(id_of_event bigint) returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from relevo.notification_events e where e.id = id_of_event and e.state = 'fanned' and e.ended_at is null)
     and not exists (select from (select f.status, f.deliveries from relevo.event_progress f where f.event_id = id_of_event
                                  union all
                                  select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = id_of_event) p
                      where p.status in ('pending', 'retryable', 'sent', 'failed', 'unknown')
                      group by p.status having sum(p.deliveries) <> 0)
     and not exists (select from relevo.digest_events d
                      where d.event_id = id_of_event
                        and (d.number is null or exists (select from relevo.digest_slots s where s.after_number < d.number)))
$$;

revoke all on function relevo.is_finished from public;
