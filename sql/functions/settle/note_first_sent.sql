-- Notes that events were sent for the first time, and their tenders. Skips an event that somebody holds: whoever deletes it waits for the
-- deliveries that are locked here already.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language plpgsql volatile
as $$
begin
  perform relevo.note_sent(event_ids, relevo.now(at));
end
$$;

revoke all on function relevo.note_first_sent from public;
