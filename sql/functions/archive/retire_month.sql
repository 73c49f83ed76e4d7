-- Retires a sealed month: detached and moved in one transaction, without touching a row.
create or replace function relevo.retire_month(of_entity text, of_month date) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  old_name text;
  new_name text;
begin
  perform from relevo.archive_exports where entity = of_entity and month = of_month and state = 'sealed' for update;
  if not found then
    raise exception 'the month % of % is not sealed', to_char(of_month, 'YYYY-MM'), of_entity;
  end if;
  execute format('alter table relevo.%I detach partition relevo.%I', of_entity, place);
  -- PostgreSQL shortens the names of a partition's indexes, and gives a name that is free again to a later one
  for old_name, new_name in select i.indexrelid::regclass::text, place || '_' || row_number() over (order by i.indexrelid)
                              from pg_index i where i.indrelid = format('relevo.%I', place)::regclass loop
    execute format('alter index %s rename to %I', old_name, new_name);
  end loop;
  execute format('alter table relevo.%I set schema relevo_archive', place);
  perform relevo.share_grants(of_entity, format('relevo_archive.%I', place)::regclass);
  update relevo.archive_exports set state = 'retired', retired_at = now(), updated_at = now() where entity = of_entity and month = of_month;
end
$$;

revoke all on function relevo.retire_month from public;
