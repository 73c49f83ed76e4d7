-- next_event as 0.3.0 calls it.
create or replace function relevo.next_event_1(of_lane text, after_project text, given_up bigint[], at timestamptz) returns
    relevo.notification_events
  language sql volatile
as $$ select relevo.next_event($1, $2, $3, $4, null, null) $$;

revoke all on function relevo.next_event_1 from public;
