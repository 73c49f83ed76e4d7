-- Returns whether an event's push was sent to this token, given with its provider, by another installation, which had it then. One that is still on its way does not
-- count: should it fail, this one must arrive.
create or replace function relevo.was_sent_to_token(of_day date, of_event bigint, by_other_than uuid, token_name text, since timestamptz) returns boolean
  language plpgsql stable
as $$
begin
  return exists (select from relevo.moved_tokens m
                   join relevo.notification_deliveries d
                     on d.event_day = of_day and d.notification_event_id = of_event and d.installation_id = m.installation_id
                  where m.token_key = hashtextextended(token_name, 0) and m.installation_id <> by_other_than and m.moved_at >= since
                    and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'));
end
$$;

revoke all on function relevo.was_sent_to_token from public;
