-- name: find_store
-- Returns by what the archive in a store is known, if months were exported to it before.
select s.archive_id from relevo.archive_stores s where s.name = %(name)s;

-- name: record_store
-- Notes by what the archive in a store is known, when it is used for the first time.
insert into relevo.archive_stores (name, archive_id) values (%(name)s, %(archive_id)s) on conflict do nothing;
