-- Writes the deliveries of a slice of an event, queues them in chunks of a hundred by project and by when they fall due, and counts them. Deliveries
-- that wait for the end of quiet hours are spread after it, chunk by chunk.
create or replace function relevo.write_deliveries(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], dues timestamptz[],
                                                   inboxes bigint[])
  returns void
  language plpgsql volatile
as $$
declare
  ids bigint[];
  n record;
  -- an event for everyone belongs to the phones: whose they are is not compared when it is sent
  compared bigint[] := case when e.audience <> 'everyone' then inboxes end;
begin
  ids := array(select nextval('relevo.delivery_ids') from generate_series(1, cardinality(phones)));
  -- no `on conflict`: one that is there already and unknown to the event is told by the error, and the slice made anew beside it (step_aside);
  -- passed over in silence its chunk would name a delivery that was never made
  insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, provider, project, lane,
                                              at_most_once, deadline_at, created_at, inbox_id)
  select e.event_day, u.id, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now(), u.inbox_id
    from unnest(ids, phones, providers, projects, inboxes) as u(id, phone, provider, project, inbox_id);
  if dues is null then
    perform relevo.queue_slice(e, at, ids, phones, projects, compared);
  else
    select array_agg(u.id) as ids, array_agg(u.phone) as phones, array_agg(u.project) as projects, case when compared is not null then array_agg(u.inbox_id) end as inboxes into n
      from unnest(ids, phones, projects, dues, compared) as u(id, phone, project, due, inbox_id) where u.due <= at;
    if n.ids is not null then
      perform relevo.queue_slice(e, at, n.ids, n.phones, n.projects, n.inboxes);
    end if;
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations, inboxes)
    select u.project, e.lane, relevo.spread_quiet(u.due, (array_agg(u.phone))[1], max(t.quiet_spread_s), e.deadline_at), e.event_day, e.id, e.event_type,
           now(), 0, 0, false, array_agg(u.id), array_agg(u.phone), case when compared is not null then array_agg(u.inbox_id) end
      from (select u.*, (row_number() over (partition by u.project, u.due) - 1) / 100 as piece
              from unnest(ids, phones, projects, dues, compared) as u(id, phone, project, due, inbox_id) where u.due > at) u
      left join relevo.event_types t on t.event_type = e.event_type
     group by u.project, u.due, u.piece;
  end if;
  insert into relevo.event_progress_deltas (event_id, status, deliveries) values (e.id, 'pending', cardinality(phones));
end
$$;

revoke all on function relevo.write_deliveries from public;
