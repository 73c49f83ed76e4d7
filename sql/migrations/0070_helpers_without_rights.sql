-- needs relevo 0.2.0
-- Helpers have no rights but their caller's, and take relations of ours alone: two of them let a worker's role read and freeze any table of the owner.

-- The seal itself: from now on the relation refuses every write, whoever it comes from; writers under way are waited for. It says
-- which export the relation is of.
create or replace function relevo.bar_writes(barred regclass) returns void language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp
as $$
declare
  export uuid;
begin
  select x.export_id into export
    from pg_class c
    join relevo.archive_exports x on x.relation = c.relname and x.relation = x.entity || to_char(x.month, '_YYYY_MM')
   where c.oid = barred and c.relkind = 'r' and c.relnamespace in ('relevo'::regnamespace, 'relevo_archive'::regnamespace);
  if not found then
    raise exception using errcode = 'wrong_object_type', message = format('%s is no month that is being archived', barred);
  end if;
  execute format('create or replace trigger sealed before insert or update or delete on %s for each row execute function relevo.refuse_sealed(%L)',
                 barred, export);
  execute format('create or replace trigger sealed_whole before truncate on %s for each statement execute function relevo.refuse_sealed(%L)',
                 barred, export);
end
$$;

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

-- Who calls these from a function of ours has the owner's rights already; nobody else needs them.
alter function relevo.open_cold_table(text, date, int) security invoker;
alter function relevo.carry_columns(text, date) security invoker;
alter function relevo.end_event(bigint, text, text) security invoker;
alter function relevo.is_finished(bigint) security invoker;
