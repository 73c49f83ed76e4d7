-- Returns for some phones how much is unread in the inbox of their owner, or their own: at most 99, and at most 2,000 deliveries of each are walked
-- along. Each inbox is counted once, however many of the phones are its owner's.
create or replace function relevo.unread_badges(of_installations uuid[]) returns table (installation_id uuid, unread int)
  language sql stable
  set search_path = pg_catalog, pg_temp set jit = off
as $$
  with phones as materialized (
    select i.installation_id, i.owner, i.project
      from (select distinct u.id from unnest(of_installations) as u(id)) u
      cross join lateral (select i.installation_id, i.owner, i.project from relevo.device_installations i
                           where i.installation_id = u.id and not i.for_news offset 0) i
  ), counted as materialized (
    select s.owner, s.project, s.alone, (
             select count(w.event_id)::int
               from relevo.walk_inbox(relevo.find_inbox(jsonb_strip_nulls(jsonb_build_object('owner', s.owner, 'installation_id', s.alone, 'project', s.project))),
                                      'unread', null, null, null, 99, 2000) w) as unread
      from (select distinct p.owner, p.project, case when p.owner is null then p.installation_id end as alone from phones p) s
  )
  select p.installation_id, c.unread
    from phones p
    join counted c on c.project = p.project and (c.owner, c.alone) is not distinct from (p.owner, case when p.owner is null then p.installation_id end)
$$;

revoke all on function relevo.unread_badges from public;
