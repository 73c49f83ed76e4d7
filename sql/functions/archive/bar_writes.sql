-- Seals a relation: from now on it refuses every write, whoever it comes from. Waits for writers under way. The trigger names the export the
-- relation belongs to.
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

revoke all on function relevo.bar_writes from public;
