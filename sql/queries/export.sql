-- name: find_month
-- Finds the next month to work on: months without errors first, then those that were left alone for longest. Uploaded months are verified first,
-- then the oldest retired month is uploaded, then the oldest verified month whose grace is over is dropped.
select x.entity, x.month, x.state, x.relation, x.part_rows, x.rows, x.export_id::text, x.manifest_sha256
  from relevo.archive_exports x
 where (x.state in ('retired', 'exported') or (x.state = 'verified' and x.drop_eligible_at <= relevo.now(%(now)s)))
   and x.relation <> all (%(given_up)s::text[])
 order by x.last_error is not null, case when x.last_error is not null then x.updated_at end, x.state, x.month, x.entity
 limit 1;

-- name: list_parts
-- Lists the parts of a month that were uploaded.
select p.part, p.first_key, p.last_key, p.rows, p.bytes, p.file_sha256, p.content_sha256, p.verified_at is not null as verified
  from relevo.archive_parts p where p.entity = %(entity)s and p.month = %(month)s order by p.part;

-- name: record_part
-- Writes down a part that was uploaded.
insert into relevo.archive_parts as p (entity, month, part, first_key, last_key, rows, bytes, file_sha256, content_sha256)
values (%(entity)s, %(month)s, %(part)s, %(first_key)s, %(last_key)s, %(rows)s, %(bytes)s, %(file_sha256)s, %(content_sha256)s)
on conflict (entity, month, part) do update
   set bytes = excluded.bytes, file_sha256 = excluded.file_sha256, content_sha256 = excluded.content_sha256, uploaded_at = now(), verified_at = null;

-- name: finish_upload
-- Notes that every part of a month and its manifest are in the store; not if the parts do not hold as many rows as the month has.
update relevo.archive_exports x
   set state = 'exported', exported_at = now(), updated_at = now(), last_error = null, parts = s.parts, bytes = s.bytes,
       manifest_sha256 = %(manifest_sha256)s
  from (select count(*)::int as parts, coalesce(sum(p.rows), 0)::bigint as rows, coalesce(sum(p.bytes), 0)::bigint as bytes
          from relevo.archive_parts p where p.entity = %(entity)s and p.month = %(month)s) s
 where x.entity = %(entity)s and x.month = %(month)s and x.state = 'retired' and x.rows = s.rows;

-- name: record_verified
-- Notes that a part was read back and is what the database holds.
update relevo.archive_parts set verified_at = now() where entity = %(entity)s and month = %(month)s and part = %(part)s;

-- name: record_mismatch
-- Records that the store's objects differ from the database, and counts this. It resets the parts that are wrong or not verified, so that they are
-- uploaded again, and no longer trusts the verified parts.
with wrong as (
  delete from relevo.archive_parts p where p.entity = %(entity)s and p.month = %(month)s and (p.part = any (%(parts)s) or p.verified_at is null)
), doubted as (
  update relevo.archive_parts p set verified_at = null
   where p.entity = %(entity)s and p.month = %(month)s and p.part <> all (%(parts)s) and p.verified_at is not null
)
update relevo.archive_exports
   set state = 'retired', exported_at = null, verified_at = null, drop_eligible_at = null, registered_at = null, mismatches = mismatches + 1,
       last_error = left(%(error)s, 500), updated_at = now()
 where entity = %(entity)s and month = %(month)s and state <> 'dropped';

-- name: record_trouble
-- Notes why a month could not be brought further.
update relevo.archive_exports set last_error = left(%(error)s, 500), updated_at = now() where entity = %(entity)s and month = %(month)s;

-- name: finish_verify
-- Notes that a whole month is in the store as it is in the database, and when it may be dropped.
update relevo.archive_exports
   set state = 'verified', verified_at = relevo.now(%(now)s), last_error = null, updated_at = now(),
       drop_eligible_at = relevo.now(%(now)s) + %(grace_days)s::int * interval '1 day'
 where entity = %(entity)s and month = %(month)s and state = 'exported'
   and not exists (select from relevo.archive_parts p where p.entity = %(entity)s and p.month = %(month)s and p.verified_at is null);

-- name: drop_retired
-- Drops the relation of a verified month, exactly that one.
select relevo.drop_retired(%(entity)s, %(month)s, %(now)s);
