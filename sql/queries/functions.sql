-- name: find_applied_functions
-- Returns whether this database remembers which files of functions were applied to it.
select to_regclass('relevo.applied_functions') is not null;

-- name: list_applied_functions
-- Lists the files of functions that were applied, each with its checksum and the version that applied it; without a checksum the function was dropped.
select name, checksum, applied_by from relevo.applied_functions;

-- name: skip_body_checks
-- Lets a function name what is made after it.
set local check_function_bodies = off;

-- name: list_function_names
-- Lists the names of the functions that are there.
select distinct p.proname::text from pg_proc p where p.pronamespace = 'relevo'::regnamespace;

-- name: list_bound_functions
-- Lists functions with those of ours that PostgreSQL has bound to them, however deep: it drops them together or not at all.
with recursive bound as (
  select p.oid, p.proname from pg_proc p where p.pronamespace = 'relevo'::regnamespace and p.proname = any (%(names)s::text[])
  union
  select p.oid, p.proname
    from bound b
    join pg_depend d on d.refclassid = 'pg_proc'::regclass and d.refobjid = b.oid and d.classid = 'pg_proc'::regclass
    join pg_proc p on p.oid = d.objid and p.pronamespace = 'relevo'::regnamespace and p.proname = any (%(ours)s::text[])
)
select b.proname::text, b.oid::regprocedure::text from bound b order by 1, 2;

-- name: list_rights
-- Lists the statements that give a function back to its owner and its callers, if it is made anew; what everybody may call is in its file.
select name, statement
  from (select p.proname::text, 1, format('alter function relevo.%%I owner to %%s', p.proname, p.proowner::regrole)
          from pg_proc p where p.pronamespace = 'relevo'::regnamespace and p.proowner <> (select r.oid from pg_roles r where r.rolname = current_user)
        union all
        select p.proname::text, 2,
               format('grant execute on function relevo.%%I to %%s', p.proname, a.grantee::regrole) || case when a.is_grantable then ' with grant option' else '' end
          from pg_proc p
          cross join aclexplode(p.proacl) a
         where p.pronamespace = 'relevo'::regnamespace and a.grantee not in (0, p.proowner)) as r(name, step, statement)
 order by name, step;

-- name: list_new_grants
-- Lists the statements that let each role that may call relevo.enqueue call the app's functions that are new: those whose name was not there before.
select format('grant execute on function relevo.%%s to %%s', f, a.grantee::regrole)
  from pg_proc p
  cross join aclexplode(p.proacl) a
  cross join unnest(relevo.app_functions()) f
 where p.oid = 'relevo.enqueue(jsonb)'::regprocedure and a.grantee not in (0, p.proowner) and split_part(f, '(', 1) <> all (%(there)s::text[]);

-- name: record_functions
-- Writes down which files of functions were applied, and without a checksum which functions were dropped.
insert into relevo.applied_functions as a (name, checksum, applied_by)
select g.name, g.checksum, %(by)s from unnest(%(names)s::text[], %(checksums)s::text[]) as g(name, checksum)
on conflict (name) do update set checksum = excluded.checksum, applied_by = excluded.applied_by, applied_at = now();
