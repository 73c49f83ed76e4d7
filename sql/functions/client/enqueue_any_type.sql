-- Enqueues events of any type, those of Relevo itself included.
create or replace function relevo.enqueue_any_type(events jsonb) returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql security definer
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
  perform relevo.check_events(events);
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content), array_agg(case when cardinality(w.unknown_installations) > 0 then w.unknown_installations::text end)
    into ids, news, sames, strangers from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if false = any (sames) then
    sames := relevo.refuse_conflicts(events, ids, sames);
  end if;
  if true = any (news) then
    perform relevo.refuse_unshown(events, news);
  end if;
  if true = any (news) and relevo.any_urgent(events) then
    perform relevo.wake_now('fanout');
  elsif true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select u.id, u.new, u.same, coalesce(u.strangers::uuid[], '{}') from unnest(ids, news, sames, strangers) as u(id, new, same, strangers);
end
$$;

revoke all on function relevo.enqueue_any_type from public;
