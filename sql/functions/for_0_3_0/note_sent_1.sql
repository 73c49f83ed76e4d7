-- note_sent as 0.3.0 calls it.
create or replace function relevo.note_sent_1(events bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.note_sent($1, $2) $$;

revoke all on function relevo.note_sent_1 from public;
