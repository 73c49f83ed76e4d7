-- needs relevo 0.2.0
-- An urgent event calls fan-out even while no replica sleeps: one that rests after work would find it only once its pause is over.

-- Calls two of the replicas that run a cycle, whatever they do just now, those that sleep first; the others hear it after their round.
create function relevo.wake_now(cycle_name text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[] := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.cycles) and w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.wakeups = 'listening'
       and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
     order by cycle_name = any (w.asleep) desc, md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
begin
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

create index event_types_urgent on relevo.event_types (event_type) where lane = 'urgent';

-- Tells whether any of some events may be urgent: by its own lane, or by that of its type.
create function relevo.any_urgent(events jsonb) returns boolean
  language sql stable
  set enable_seqscan = off
  return events @> '[{"lane": "urgent"}]'
      or (exists (select from relevo.event_types t where t.lane = 'urgent')
          and exists (select from (select distinct g.event ->> 'type' as event_type from jsonb_array_elements(events) as g(event)) g
                       cross join lateral (select from relevo.event_types t where t.event_type = g.event_type and t.lane = 'urgent' offset 0) t));

create or replace function relevo.enqueue_any_type(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
  news boolean[];
  sames boolean[];
  strangers text[]; -- lists of different lengths have no array of their own
  one record;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  perform relevo.check_event(e) from jsonb_array_elements(events) as e;
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content), array_agg(w.unknown_installations::text)
    into ids, news, sames, strangers from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if true = any (news) and relevo.any_urgent(events) then
    perform relevo.wake_now('fanout');
  elsif true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select u.id, u.new, u.same, u.strangers::uuid[] from unnest(ids, news, sames, strangers) as u(id, new, same, strangers);
end
$$;

revoke all on function relevo.wake_now(text), relevo.any_urgent(jsonb) from public;
