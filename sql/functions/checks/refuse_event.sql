-- Refuses one of many events and names its position, or the only one without.
create or replace function relevo.refuse_event(place bigint, complaint text) returns void
  language plpgsql
as $$ begin perform relevo.refuse(case when place is null then complaint else format('events.%s: %s', place - 1, complaint) end); end $$;

revoke all on function relevo.refuse_event from public;
