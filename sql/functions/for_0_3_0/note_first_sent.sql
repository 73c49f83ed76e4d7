-- note_sent as 0.3.0's statements call it, with the time that a test may give.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.note_sent($1, relevo.now($2)) $$;

revoke all on function relevo.note_first_sent from public;
