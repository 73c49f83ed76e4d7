-- Moves a batch of a month's items to the cold table and returns how many.
create or replace function relevo.retire_items(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := relevo.open_cold_table('licitaciones', of_month, rows_per_part);
  columns text; -- those that both have: one that was dropped since is null in what comes later
  moved int;
begin
  perform relevo.carry_columns('licitaciones', of_month);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum) into columns
    from pg_attribute a
    join pg_attribute h on h.attrelid = 'relevo.licitaciones'::regclass and h.attname = a.attname and not h.attisdropped
   where a.attrelid = format('relevo_archive.%I', place)::regclass and a.attnum > 0 and not a.attisdropped;
  execute format($sql$
    with old as materialized (
      select l.id from relevo.licitaciones l
       where l.created_at >= $1::timestamp at time zone 'UTC' and l.created_at < ($1 + interval '1 month') at time zone 'UTC'
       order by l.created_at, l.id limit $2 for update
    ), gone as (
      delete from relevo.licitaciones l using old where l.id = old.id returning l.*
    )
    insert into relevo_archive.%1$I (%2$s) select %2$s from gone$sql$, place, columns)
  using of_month, most;
  get diagnostics moved = row_count;
  return moved;
end
$$;

revoke all on function relevo.retire_items from public;
