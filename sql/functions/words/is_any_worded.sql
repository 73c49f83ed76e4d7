-- Returns whether the text of one of some events is made from the texts of its type.
create or replace function relevo.is_any_worded(events bigint[]) returns boolean
  language sql stable
as $$ select exists (select from relevo.notification_events e where e.id = any (events) and e.wording is not null) $$;

revoke all on function relevo.is_any_worded from public;
