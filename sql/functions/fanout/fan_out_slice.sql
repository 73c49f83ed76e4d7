-- Makes and queues the deliveries of the next slice of an event that this transaction has locked; returns no row if its month is sealed.
-- How it goes: find the stream that the brake watches, begin the event if this is its first slice, find the phones, leave out whoever got the
-- event before it, insert deliveries, queue them in chunks of a hundred, move the cursor, wake dispatch, count for the brake up to a hundred
-- phones. Of a stream that was stopped as a whole within the last hour nothing is made unless the caller judged it (`looked`): then the row is
-- all null.
create or replace function relevo.fan_out_slice(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
                                       enough int, given_at timestamptz)
  returns table (is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  e relevo.notification_events := of_event;
  due timestamptz := greatest(e.scheduled_at, e.created_at);
  origin_of text := 'app';
  stream bigint;
  release int;
  stopped boolean;
  was_held boolean;
  t record;
  ids bigint[];
begin
  if watched then
    if e.licitacion_id is not null then
      origin_of := relevo.event_origin(e);
    end if;
    select s.id, s.releases, s.held_above is not null and due - s.held_at < interval '1 hour',
           exists (select from relevo.held_events h where h.event_id = e.id)
      into stream, release, stopped, was_held
      from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
    if stopped and not was_held and not looked and e.audience <> 'installations' then
      return next;
      return;
    end if;
  end if;
  if e.event_day is null then
    e.event_day := (at at time zone 'UTC')::date;
    e.fanout_started_at := at;
    e.fanout_upto := coalesce((select max(i.seq) from relevo.device_installations i), 0);
    if to_regclass('relevo.notification_deliveries' || to_char(e.event_day, '_YYYY_MM')) is null
       or to_regclass('relevo.push_requests' || to_char(e.event_day, '_YYYY_MM')) is null then
      perform relevo.ensure_partitions(e.event_day, 1);
    end if;
  end if;
  if relevo.hold_open(array[e.event_day]) = '{}' then
    return;
  end if;
  t := relevo.next_targets(e, most);
  is_last := t.is_last;
  targets := coalesce(cardinality(t.phones), 0);
  if targets > 0 and (step_aside or exists (select from relevo.event_followers f where f.event_id = e.id)) then
    select count(*), array_agg(u.phone) filter (where not u.is_there), array_agg(u.provider) filter (where not u.is_there),
           array_agg(u.project) filter (where not u.is_there)
      into targets, t.phones, t.providers, t.projects
      from (select u.*, step_aside and exists (select from relevo.notification_deliveries d
                                                where d.event_day = e.event_day and d.notification_event_id = e.id
                                                  and d.installation_id = u.phone offset 0) as is_there
              from unnest(t.phones, t.providers, t.projects) as u(phone, provider, project)
             where not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                                 join relevo.notification_events o on o.id = f.former_event_id
                                 join relevo.notification_deliveries d
                                   on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = u.phone
                                where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown') offset 0)) u;
  end if;
  created := coalesce(cardinality(t.phones), 0);
  if created > 0 then
    ids := array(select nextval('relevo.delivery_ids') from generate_series(1, created));
    -- no `on conflict`: one that is there already and unknown to the event is told by the error, and the slice made anew beside it (step_aside);
    -- passed over in silence its chunk would name a delivery that was never made
    insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select e.event_day, u.id, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now()
      from unnest(ids, t.phones, t.providers, t.projects) as u(id, phone, provider, project);
    if t.projects <@ t.projects[1:1] then
      insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                     ids, installations)
      select t.projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], t.phones[n + 1 : n + 100]
        from generate_series(0, created - 1, 100) as n;
    else
      insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                     ids, installations)
      select u.project, e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone)
        from (select u.*, (row_number() over (partition by u.project) - 1) / 100 as piece
                from unnest(ids, t.phones, t.projects) as u(id, phone, project)) u
       group by u.project, u.piece;
    end if;
    insert into relevo.event_progress_deltas (event_id, status, deliveries) values (e.id, 'pending', created);
  end if;
  update relevo.notification_events n
     set state = case when is_last then 'fanned' else 'fanning' end, event_day = e.event_day, fanout_started_at = e.fanout_started_at,
         fanout_upto = e.fanout_upto, fanout_cursor = case when is_last then e.fanout_upto else t.last_seq end,
         targets_selected = e.targets_selected + targets, deliveries_created = e.deliveries_created + created,
         fanout_finished_at = case when is_last then at end, updated_at = at,
         turn_at = at + interval '10 seconds', -- whoever falls due meanwhile goes first
         fanout_failures = null, fanout_retry_at = null, fanout_error = null
   where n.id = e.id;
  if created > 0 then
    perform relevo.wake('dispatch');
    if watched then
      t.phones := case when e.audience <> 'installations' then '{00000000-0000-0000-0000-000000000000}'::uuid[] else '{}' end
        || case when created <= 100 then t.phones else array(select u.phone from unnest(t.phones) as u(phone) order by u.phone limit 100) end;
      if stream is null then
        insert into relevo.event_streams (event_type, origin, known_since) values (e.event_type, origin_of, due)
        on conflict (event_type, origin) do nothing;
        select s.id, s.releases, exists (select from relevo.held_events h where h.event_id = e.id) into stream, release, was_held
          from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
      end if;
      if relevo.count_event(stream, release, was_held, due, t.phones) > enough then -- else that is too much for nobody
        select array_agg(c.installation_id), array_agg(relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due)), array_agg(c.busiest_day)
          into counted, in_hour, busiest_day
          from relevo.event_counts c where c.stream_id = stream and c.installation_id = any (t.phones);
        projects := array(select distinct u.project from unnest(t.projects) as u(project));
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_slice from public;
