-- name: list_archive
-- Lists the months that left the hot tables, oldest first: how far each is, and what keeps it.
select x.entity, x.month, x.state, x.rows, x.bytes, x.parts,
       (select count(*)::int from relevo.archive_parts p where p.entity = x.entity and p.month = x.month) as parts_uploaded,
       x.retired_at, x.verified_at, x.drop_eligible_at, x.dropped_at, x.mismatches, x.last_error, x.registered_at, x.register_error
  from relevo.archive_exports x
 order by x.month, x.entity;

-- name: page_archive
-- Lists the months that left the hot tables, newest first, before a month if asked.
select x.entity, x.month, x.state, x.rows, x.bytes, x.parts, x.retired_at, x.exported_at, x.verified_at, x.drop_eligible_at, x.dropped_at,
       x.mismatches, x.last_error, now() as now
  from relevo.archive_exports x
 where x.month < coalesce(%(before)s::date, 'infinity')
 order by x.month desc, x.entity
 limit %(limit)s;

-- name: list_partitions
-- Lists the months of deliveries and journal that are in the hot tables: how large each is, and about how many rows it has.
select e.entity, c.relname as name, pg_total_relation_size(c.oid) as bytes, pg_stat_get_live_tuples(c.oid) as rows_about,
       case when c.relname ~ ('^' || e.entity || E'_\\d{4}_(0[1-9]|1[0-2])$') then to_date(right(c.relname, 7), 'YYYY_MM') end as month
  from unnest(array['notification_deliveries', 'push_requests']) as e(entity)
  join pg_inherits i on i.inhparent = format('relevo.%%I', e.entity)::regclass
  join pg_class c on c.oid = i.inhrelid
 order by month desc nulls first, e.entity
 limit 200;
