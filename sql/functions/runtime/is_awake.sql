-- Returns whether a cycle is awake now, as every transaction sees it: a value of a sequence belongs to no snapshot. A transaction
-- that has written and reads true need not call the cycle, even if the cycle falls asleep before the commit: a cycle that has reported
-- its sleep continues to look until all transactions that had begun to write by then have ended.
create or replace function relevo.is_awake(cycle_name text) returns boolean
  language plpgsql volatile
as $$
begin
  return coalesce(pg_sequence_last_value(relevo.awake_marker(cycle_name)) = 1, false);
end
$$;

revoke all on function relevo.is_awake from public;
