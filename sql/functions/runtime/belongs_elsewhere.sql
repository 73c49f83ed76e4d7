-- Returns whether this database belongs to another instance; what is not known does not count as a difference.
create or replace function relevo.belongs_elsewhere(instance_name text) returns boolean
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (select from relevo.instance i
                  where i.name is distinct from instance_name
                     or i.database_oid <> (select d.oid::bigint from pg_database d where d.datname = current_database())
                     or i.system_identifier <> relevo.system_identifier());
end
$$;

revoke all on function relevo.belongs_elsewhere from public;
