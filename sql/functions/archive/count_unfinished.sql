-- Counts the rows in a range of a month's blocks that are not final: with nothing in a queue they would be lost with their month.
create or replace function relevo.count_unfinished(of_month date, from_block bigint, blocks bigint) returns bigint language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  rows bigint;
begin
  execute format('select count(*) from relevo.%I d where d.ctid >= $1 and d.ctid < $2 and d.completed_at is null',
                 'notification_deliveries' || to_char(of_month, '_YYYY_MM'))
  into rows using format('(%s,0)', from_block)::tid, format('(%s,0)', from_block + blocks)::tid;
  return rows;
end
$$;

revoke all on function relevo.count_unfinished from public;
