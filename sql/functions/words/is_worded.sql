-- Returns whether the text of an event is made from the texts of its type.
create or replace function relevo.is_worded(event bigint) returns boolean
  language sql stable
as $$ select exists (select from relevo.notification_events e where e.id = event and e.wording is not null) $$;

revoke all on function relevo.is_worded from public;
