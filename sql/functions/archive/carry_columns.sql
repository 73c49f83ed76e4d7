-- Adds to a month's cold table every column that its hot table has got since. It refuses a changed column, because the moved rows are deleted from
-- the hot table and must not lose a value. Locks the hot table as a delete does, so that no column appears before the rows have gone. Columns only
-- fan-out uses, and generated ones, stay behind.
create or replace function relevo.carry_columns(of_entity text, of_month date) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  of_column record;
begin
  execute format('lock table relevo.%I in row exclusive mode', of_entity);
  for of_column in
    select h.attname as name, format_type(h.atttypid, h.atttypmod) as type, format_type(c.atttypid, c.atttypmod) as cold_type
      from pg_attribute h
      left join pg_attribute c on c.attrelid = format('relevo_archive.%I', place)::regclass and c.attname = h.attname and not c.attisdropped
     where h.attrelid = format('relevo.%I', of_entity)::regclass and h.attnum > 0 and not h.attisdropped
       and (of_entity <> 'notification_events' or h.attname <> all (array['fanout_upto', 'fanout_cursor', 'swept_at', 'match_prefixes']))
       and (c.attname is null or (c.atttypid, c.atttypmod) is distinct from (h.atttypid, h.atttypmod))
     order by h.attnum
  loop
    if of_column.cold_type is not null then
      raise exception using errcode = 'object_not_in_prerequisite_state',
        message = format('column %I of relevo.%I is of type %s, and that of relevo_archive.%I, into which its month moves, of type %s',
                         of_column.name, of_entity, of_column.type, place, of_column.cold_type),
        hint = 'Alter the archived table in the same way; nothing was moved.';
    end if;
    execute format('alter table relevo_archive.%I add column %I %s', place, of_column.name, of_column.type);
  end loop;
end
$$;

revoke all on function relevo.carry_columns from public;
