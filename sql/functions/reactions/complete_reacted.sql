-- Ends unsent what still waits for an owner's phones of events that the owner read, or opened, on one of them, where their types say so.
create or replace function relevo.complete_reacted(of_events bigint[], of_owner text, by_what text) returns void
  language sql volatile
as $$
  insert into relevo.event_completions (event_id, owner, reason)
  select e.id, of_owner, by_what
    from relevo.notification_events e
    join relevo.event_types t on t.event_type = e.event_type and t.complete_on = by_what
   where e.id = any (of_events) and of_owner is not null and e.ended_at is null
     and (e.state <> 'fanned' or exists (
           select from (select p.status, p.deliveries from relevo.event_progress p where p.event_id = e.id
                        union all
                        select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) p
            where p.status in ('pending', 'retryable')
            group by p.status having sum(p.deliveries) > 0))
   order by e.id
     for key share of e
  on conflict do nothing
$$;

revoke all on function relevo.complete_reacted from public;
