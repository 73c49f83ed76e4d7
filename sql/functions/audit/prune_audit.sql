-- Deletes a batch of entries of the audit log that are older than their retention, the oldest first, and returns their ids. Whatever its caller
-- asks for, entries of the last 30 days stay: the worker's role has no other way to delete an entry.
create or replace function relevo.prune_audit(retention_days int, most int) returns setof bigint
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  with old as materialized (
    select a.id, a.at from relevo.audit_log a order by a.id limit most
  )
  delete from relevo.audit_log a using old
   where a.id = old.id and old.at < now() - greatest(retention_days, 30) * interval '1 day'
  returning a.id
$$;

revoke all on function relevo.prune_audit from public;
