-- Queues deliveries of an event that are due now, in chunks of a hundred by project.
create or replace function relevo.queue_slice(e relevo.notification_events, at timestamptz, ids bigint[], phones uuid[], projects text[]) returns void
  language plpgsql volatile
as $$
begin
  if projects <@ projects[1:1] then
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], phones[n + 1 : n + 100]
      from generate_series(0, cardinality(phones) - 1, 100) as n;
  else
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select u.project, e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone)
      from (select u.*, (row_number() over (partition by u.project) - 1) / 100 as piece
              from unnest(ids, phones, projects) as u(id, phone, project)) u
     group by u.project, u.piece;
  end if;
end
$$;

revoke all on function relevo.queue_slice from public;
