-- Returns whether ending an event would change nothing: nothing of it is left to send, confirm, find out or redrive,
-- and no digest or batch is to come that may tell it.
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
     and not exists (select from relevo.digest_items x where x.event_id = id_of_event)
     and not exists (select from (select 'o:' || o.owner as subject from relevo.event_owners o where o.event_id = id_of_event
                                  union all
                                  select 'i:' || a.installation_id from relevo.event_audience a where a.event_id = id_of_event) s
                       join relevo.batches b on b.subject = s.subject and id_of_event = any (b.events) and relevo.is_batch_unsent(b))
$$;

revoke all on function relevo.is_finished from public;
