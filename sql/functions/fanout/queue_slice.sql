-- Queues deliveries of an event that are due now, in chunks of a hundred by project. `inboxes` are those they were made for; null if nothing is to be compared.
create or replace function relevo.queue_slice(e relevo.notification_events, at timestamptz, ids bigint[], phones uuid[], projects text[], inboxes bigint[]) returns void
  language plpgsql volatile
as $$
begin
  if projects <@ projects[1:1] then
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations, inboxes)
    select projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], phones[n + 1 : n + 100], inboxes[n + 1 : n + 100]
      from generate_series(0, cardinality(phones) - 1, 100) as n;
  else
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations, inboxes)
    select u.project, e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone),
           case when inboxes is not null then array_agg(u.inbox_id) end
      from (select u.*, (row_number() over (partition by u.project) - 1) / 100 as piece
              from unnest(ids, phones, projects, inboxes) as u(id, phone, project, inbox_id)) u
     group by u.project, u.piece;
  end if;
end
$$;

revoke all on function relevo.queue_slice from public;
