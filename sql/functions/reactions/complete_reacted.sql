-- Ends the unsent pushes of events that an owner read or opened on one phone, if their types ask for that: on the owner's phones of one project, or
-- of all if equal names are one person. It ends pushes of single events and removes events from open batches. The push of a batch stands for its
-- events.
create or replace function relevo.complete_reacted(of_events bigint[], of_owner text, of_project text, by_what text) returns void
  language sql volatile
as $$
  insert into relevo.event_completions (event_id, owner, reason, project)
  select e.id, of_owner, by_what, case when relevo.project_of_owners() is not null then of_project end
    from relevo.notification_events e
    join relevo.event_types t on t.event_type = e.event_type and t.complete_on = by_what
   where e.id = any (of_events || array(select unnest(b.events) from relevo.notification_events n join relevo.batches b on b.id = n.batch_id and b.event_id = n.id
                                         where n.id = any (of_events)))
     and of_owner is not null and e.ended_at is null
     and (e.state <> 'fanned' or relevo.is_anything_open(e.id)
          or exists (
               select from relevo.batches b
                where b.event_type = e.event_type and e.id = any (b.events) and relevo.is_batch_unsent(b)
                  and b.subject in (select 'o:' || of_owner union all
                                    select 'i:' || i.installation_id from relevo.device_installations i where i.owner = of_owner)))
   order by e.id
     for key share of e
  on conflict do nothing
$$;

revoke all on function relevo.complete_reacted from public;
