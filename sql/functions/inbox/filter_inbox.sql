-- Returns the gathered events that are items and wanted, newest first, with their marks. An event that reached several phones has the place of its
-- first delivery, which is looked up only on phones by which none of it was gathered. No items are: cancelled and deleted events, events without
-- title and body, the announcements of batches and digests, news for the app, and events that their type keeps out of inboxes or keeps no longer.
create or replace function relevo.filter_inbox(s relevo.inbox_subject, wanted text, of_category text, of_type text, places bigint[], events bigint[],
                                               days date[], ats timestamptz[], reaches bigint, most int, came_by uuid[] default null)
  returns table (place bigint, event_id bigint, at timestamptz, seen_at timestamptz, read_at timestamptz, archived_at timestamptz)
  language sql stable
as $$
  select c.place, c.event_id, c.at, c.seen_at, c.read_at, c.archived_at
    from (select u.*, w.seen_at, w.read_at, m.archived_at -- marks come first: of what they leave out nothing else is looked up
            from (select distinct on (u.place) u.*
                    from (select u.*, min(u.place) filter (where u.day is not null) over of_event as first, array_agg(u.phone) over of_event as known
                            from unnest(places, events, days, ats, came_by) as u(place, event_id, day, at, phone)
                          window of_event as (partition by u.event_id)) u
                   where u.place >= reaches order by u.place desc, u.day nulls last) u
            left join lateral (select m.event_id, m.seen_at, m.read_at, m.archived_at from relevo.inbox_marks m
                                where m.inbox_id = s.inbox_id and m.event_id = u.event_id offset 0) m on true
            cross join lateral (select case when m.event_id is not null then m.seen_at when u.at <= s.seen_before then s.seen_before end as seen_at,
                                       case when m.event_id is not null then m.read_at when u.at <= s.read_before then s.read_before end as read_at) w
           where case wanted when 'all' then true
                             when 'archived' then m.archived_at is not null
                             when 'current' then m.archived_at is null
                             when 'read' then m.archived_at is null and w.read_at is not null
                             when 'unread' then m.archived_at is null and w.read_at is null
                             else m.archived_at is null and w.seen_at is null end
          order by u.place desc offset 0) c
    left join lateral (select e.event_type, e.category, e.state, (e.title <> '' or e.body <> '') and e.batch_id is null as shows from relevo.notification_events e
                        where e.id = c.event_id offset 0) e on true
    left join lateral (select k.event_type, k.category, k.kept_until from relevo.kept_inbox_items k
                        where e.state is null and k.inbox_id = s.inbox_id and k.event_id = c.event_id offset 0) k on true
    left join lateral (select t.inbox, t.inbox_days from relevo.event_types t where t.event_type = coalesce(e.event_type, k.event_type) offset 0) t on true
   where case when e.state is not null
              then e.state <> 'cancelled' and e.shows and e.event_type <> all ('{relevo.news,relevo.digest}') and c.at > now() - coalesce(t.inbox_days, 90) * interval '1 day'
              else k.kept_until > now() end
     and coalesce(t.inbox, true)
     and (of_type is null or coalesce(e.event_type, k.event_type) = of_type)
     and (of_category is null or case when e.state is not null then e.category else k.category end = of_category)
     and (cardinality(s.phones) < 2 or c.day is null or c.place = c.first and not exists (
           select from unnest(s.phones, s.since) as p(phone, since)
             cross join lateral (select d.id, d.created_at, d.inbox_id from relevo.notification_deliveries d
                                  where d.event_day = c.day -- compared as a pair: by the key of event and phone, never along all of a phone's deliveries
                                    and (d.notification_event_id, d.installation_id) >= (c.event_id, p.phone)
                                    and (d.notification_event_id, d.installation_id) <= (c.event_id, p.phone) offset 0) d
            where array_position(c.known, p.phone) is null and d.id < c.place and relevo.is_item_of(s.inbox_id, d.inbox_id, d.created_at, p.since)))
   order by c.place desc
   limit most
$$;

revoke all on function relevo.filter_inbox from public;
