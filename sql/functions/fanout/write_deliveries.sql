-- Writes the deliveries of a slice of an event, queues them in chunks of a hundred by project and by when they fall due, and counts them. What
-- waits for the end of quiet hours is spread after it, chunk by chunk.
create or replace function relevo.write_deliveries(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], dues timestamptz[])
  returns void
  language plpgsql volatile
as $$
declare
  ids bigint[];
  spread_s int := case when dues is not null then (select t.quiet_spread_s from relevo.event_types t where t.event_type = e.event_type) end;
begin
  ids := array(select nextval('relevo.delivery_ids') from generate_series(1, cardinality(phones)));
  -- no `on conflict`: one that is there already and unknown to the event is told by the error, and the slice made anew beside it (step_aside);
  -- passed over in silence its chunk would name a delivery that was never made
  insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, provider, project, lane,
                                              at_most_once, deadline_at, created_at)
  select e.event_day, u.id, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now()
    from unnest(ids, phones, providers, projects) as u(id, phone, provider, project);
  if dues is null and projects <@ projects[1:1] then
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], phones[n + 1 : n + 100]
      from generate_series(0, cardinality(phones) - 1, 100) as n;
  else
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select u.project, e.lane,
           case when u.due > at then relevo.spread_quiet(u.due, (array_agg(u.phone))[1], spread_s, e.deadline_at) else at end,
           e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone)
      from (select u.*, (row_number() over (partition by u.project, u.due) - 1) / 100 as piece
              from unnest(ids, phones, projects, dues) as u(id, phone, project, due)) u
     group by u.project, u.due, u.piece;
  end if;
  insert into relevo.event_progress_deltas (event_id, status, deliveries) values (e.id, 'pending', cardinality(phones));
end
$$;

revoke all on function relevo.write_deliveries from public;
