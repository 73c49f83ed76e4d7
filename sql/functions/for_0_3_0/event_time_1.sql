-- event_time as 0.3.0 calls it.
create or replace function relevo.event_time_1(event jsonb, name text, place bigint) returns timestamptz
  language sql stable
as $$ select relevo.event_time($1, $2, $3) $$;

revoke all on function relevo.event_time_1 from public;
