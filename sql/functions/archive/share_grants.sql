-- Lets whoever reads an entity's hot table read what was retired of it.
create or replace function relevo.share_grants(of_entity text, cold regclass) returns void language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp
as $$
declare
  reader text;
begin
  if not exists (select from pg_class c
                  where c.oid = cold and c.relkind = 'r' and c.relnamespace = 'relevo_archive'::regnamespace
                    and of_entity in ('licitaciones', 'notification_events', 'notification_deliveries', 'push_requests')
                    and c.relname ~ ('^' || of_entity || '_[0-9]{4}_[0-9]{2}$')) then
    raise exception using errcode = 'wrong_object_type', message = format('%s is no month of %s in the archive', cold, of_entity);
  end if;
  for reader in select distinct a.grantee::regrole::text
                  from pg_class c cross join aclexplode(c.relacl) a
                 where c.oid = format('relevo.%I', of_entity)::regclass and a.privilege_type = 'SELECT' and a.grantee not in (0, c.relowner) loop
    execute format('grant usage on schema relevo_archive to %s', reader);
    execute format('grant select on %s to %s', cold, reader);
  end loop;
end
$$;

revoke all on function relevo.share_grants from public;
