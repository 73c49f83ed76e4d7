-- Brings what waits for phones that moved to where they are now, also what waits behind the open breaker of the place they left; returns how
-- many phones were looked at. Deliveries that a claim holds meanwhile are looked at again, for a day, and each phone for a minute: a fan-out that saw it
-- before it moved may commit later. Chunks are locked before deliveries, as by all who do.
create or replace function relevo.follow_moved_phones(most int, given_at timestamptz) returns int
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  at timestamptz := relevo.now(given_at);
  phones uuid[];
  since timestamptz[];
  waiting record;
  days date[];
  ids bigint[];
  due timestamptz[];
begin
  with taken as (
    delete from relevo.moved_phones m
     where m.id = any (array(select o.id from relevo.moved_phones o order by o.id limit most for update skip locked))
    returning m.installation_id, m.moved_at
  )
  select array_agg(t.installation_id), array_agg(t.moved_at) into phones, since from taken t;
  select array_agg(w.id) as ids, array_agg(w.installation_id) as phones, array_agg(distinct w.event_id) as events into waiting
    from relevo.waits_elsewhere(phones) w;

  select coalesce(array_agg(t.event_day), '{}'), coalesce(array_agg(t.id), '{}'), array_agg(t.due_at) into days, ids, due
    from relevo.take_from_queue(waiting.events, waiting.ids) t;
  if ids <> '{}' then
    update relevo.notification_deliveries d set provider = k.provider, project = k.project, updated_at = at
      from (select u.event_day, u.id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project
              from unnest(days, ids) as u(event_day, id)
              join relevo.notification_deliveries o on o.event_day = u.event_day and o.id = u.id
              join relevo.device_installations i on i.installation_id = o.installation_id
             order by u.event_day, u.id) k
     where d.event_day = any (array[k.event_day]) and d.id = k.id;
    if relevo.queue_deliveries(days, ids, due) > 0 then
      perform relevo.wake('dispatch');
    end if;
  end if;

  insert into relevo.moved_phones (installation_id, moved_at)
  select p.installation_id, min(p.moved_at) from unnest(phones, since) as p(installation_id, moved_at)
   where p.moved_at > at - interval '1 minute'
      or p.moved_at > at - interval '1 day'
     and p.installation_id in (select w.installation_id from unnest(waiting.ids, waiting.phones) as w(id, installation_id) where w.id <> all (ids))
   group by p.installation_id;
  return coalesce(cardinality(phones), 0);
end
$$;

revoke all on function relevo.follow_moved_phones from public;
