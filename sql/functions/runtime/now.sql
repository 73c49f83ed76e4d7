-- Returns the time to go by: what a test gives, else the start of the transaction. It is inlined, so a plan sees the coalesce itself.
create or replace function relevo.now(at timestamptz default null) returns timestamptz
  language sql stable parallel safe
  return coalesce(at, now());

revoke all on function relevo.now from public;
