-- name: read_numbering
-- Returns the last number of a delivery and the oldest open transaction. If the numbers advanced, it also returns a transaction that is younger
-- than all that may have taken one.
select s.last, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       case when s.last <> %(settled)s then pg_current_xact_id()::text::bigint else 0 end
  from (select case when is_called then last_value else 0 end as last from relevo.delivery_ids) s;

-- name: list_newer_places
-- Returns of some inboxes, by their numbers here, those that something came to behind a place, and its place.
select a.number::int, max(g.place)
  from unnest(%(owners)s::text[], %(projects)s::text[], %(phones)s::uuid[], %(after)s::bigint[])
       with ordinality as a(owner, project, phone, after, number)
  cross join lateral (
    select d.id as place
      from ((select i.installation_id from relevo.device_installations i
             where i.owner = a.owner and (a.project is null or i.project = a.project) and not i.for_news order by i.seq desc limit 100)
            union all select a.phone where a.phone is not null) p
      cross join lateral (select d.id from relevo.notification_deliveries d
                           where d.installation_id = p.installation_id and d.id > a.after
                             and d.event_day >= (now() at time zone 'UTC')::date - 7 -- fan-out makes a delivery in its own days
                           order by d.id desc limit 1) d
    union all
    (select o.inbox_place from relevo.event_owners o
      where o.owner = a.owner and o.inbox_project = a.project and o.inbox_place > a.after order by o.inbox_place desc limit 1)
    union all
    (select o.inbox_place from relevo.event_owners o
      where o.owner = a.owner and o.inbox_project = '' and o.inbox_place > a.after and relevo.takes_unscoped(a.owner, a.project)
      order by o.inbox_place desc limit 1)
    union all -- who waits without a project
    (select o.inbox_place from relevo.event_owners o where a.project is null and o.owner = a.owner and o.inbox_place > a.after
      order by o.inbox_place desc limit 1)) g
 group by a.number;
