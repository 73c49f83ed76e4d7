-- Writes how an action ended to its entry of the audit log, once: an entry that has ended stays as it is. The worker's role has no other way to
-- change an entry.
create or replace function relevo.finish_audit(entry bigint, ended text, came_of_it jsonb, error text) returns void
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  update relevo.audit_log a
     set outcome = ended, result = came_of_it, error_message = error, finished_at = clock_timestamp()
   where a.id = entry and a.outcome = 'begun'
$$;

revoke all on function relevo.finish_audit from public;
