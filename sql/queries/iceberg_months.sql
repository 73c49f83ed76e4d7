-- name: find_unregistered
-- Finds the next month that is verified and not in the Iceberg catalog, those that never failed first, then those left alone for longest.
select x.entity, x.month, x.relation
  from relevo.archive_exports x
 where x.verified_at is not null and x.registered_at is null and x.relation <> all (%(given_up)s::text[])
 order by x.register_error is not null, case when x.register_error is not null then x.updated_at end, x.month, x.entity
 limit 1;

-- name: record_registered
-- Notes that the catalog names the files of a month.
update relevo.archive_exports set registered_at = now(), register_error = null, updated_at = now()
 where entity = %(entity)s and month = %(month)s and verified_at is not null;

-- name: record_all_registered
-- Notes that the catalog names the files of months, of those that were verified from here.
update relevo.archive_exports x
   set registered_at = now(), register_error = null, updated_at = now()
  from unnest(%(entities)s::text[], %(months)s::date[]) as k(entity, month)
 where x.entity = k.entity and x.month = k.month and x.verified_at is not null;

-- name: record_unregistered
-- Notes why the catalog did not take a month.
update relevo.archive_exports set register_error = left(%(error)s, 500), updated_at = now()
 where entity = %(entity)s and month = %(month)s and registered_at is null;
