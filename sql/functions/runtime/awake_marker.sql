-- Returns the sequence that says whether a cycle is awake; null for a cycle that nobody calls.
create or replace function relevo.awake_marker(cycle_name text) returns regclass
  language plpgsql stable
as $$
begin
  return case cycle_name when 'fanout' then 'relevo.fanout_awake'::regclass when 'dispatch' then 'relevo.dispatch_awake'::regclass end;
end
$$;

revoke all on function relevo.awake_marker from public;
