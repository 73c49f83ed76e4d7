-- Returns the newest that may be items of an inbox, each source's newest before a place, and down to which place (`reaches`) nothing is missing
-- among them. Sources are the deliveries of each phone, events for the owner that found no phone, and kept items; those marked one by one if only
-- what came after an instant is walked along. Without sorting and bitmaps, for else all of a phone's deliveries would be read.
create or replace function relevo.gather_inbox(s relevo.inbox_subject, before bigint, wide int, after timestamptz,
    out reaches bigint, out walked int, out places bigint[], out events bigint[], out days date[], out ats timestamptz[], out came_by uuid[])
  language plpgsql stable
  set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off -- lookups only
as $$
declare
  -- of an installation without owner, what it got while it had one is not walked along
  past timestamptz := coalesce(greatest(after, case when s.owner is null then s.since[1] end), '-infinity');
  takes_unscoped boolean := s.owner is not null and relevo.takes_unscoped(s.owner, s.project);
begin
  select coalesce(max(c.lowest) filter (where c.is_more), 0), count(c.place)::int,
         array_agg(c.place) filter (where c.is_in), array_agg(c.event_id) filter (where c.is_in), array_agg(c.day) filter (where c.is_in),
         array_agg(c.at) filter (where c.is_in), array_agg(c.phone) filter (where c.is_in)
    into reaches, walked, places, events, days, ats, came_by
    from (
      select g.place, g.event_id, g.day, g.at, p.phone, g.at > past and relevo.is_item_of(s.inbox_id, g.inbox_id, g.at, p.since) as is_in,
             min(g.place) over (partition by p.source) as lowest,
             count(*) over (partition by p.source) = wide and min(g.at) over (partition by p.source) > past as is_more
        from unnest(s.phones, s.since) with ordinality as p(phone, since, source)
        cross join lateral (select d.id as place, d.notification_event_id as event_id, d.event_day as day, d.created_at as at, d.inbox_id
                              from relevo.notification_deliveries d
                             where d.installation_id = p.phone and d.id < before and d.event_day >= s.earliest
                             order by d.id desc limit wide) g
      union all
      select g.place, g.event_id, null, g.at, null, g.at > past, min(g.place) over (partition by p.project), count(*) over (partition by p.project) = wide
        from unnest(array[s.project] || case when takes_unscoped then array[''] end) as p(project) -- empty: what names no project
        cross join lateral (select o.inbox_place as place, o.event_id, e.fanout_finished_at as at
                              from relevo.event_owners o
                              cross join lateral (select e.fanout_finished_at from relevo.notification_events e where e.id = o.event_id offset 0) e
                             where o.owner = s.owner and o.inbox_project = p.project and o.inbox_place < before
                             order by o.inbox_place desc limit wide) g
      union all
      select g.place, g.event_id, null, g.at, null, g.at > past, min(g.place) over (), count(*) over () = wide
        from (select k.place, k.event_id, k.at from relevo.kept_inbox_items k
               where k.inbox_id = s.inbox_id and k.place < before order by k.place desc limit wide) g
      union all -- what came after that instant is another source's
      select g.place, g.event_id, null, g.at, null, g.at <= after and (s.owner is not null or g.at > s.since[1]), min(g.place) over (), count(*) over () = wide
        from (select m.place, m.event_id, m.at from relevo.inbox_marks m
               where after is not null and m.inbox_id = s.inbox_id and m.read_at is null and m.archived_at is null and m.place < before
               order by m.place desc limit wide) g) c;
end
$$;

revoke all on function relevo.gather_inbox from public;
