-- Returns whether a delivery can be in a status. A final status needs the time of its end, `sent` a ticket, and a retry an attempt.
create or replace function relevo.is_possible_delivery(status text, attempt_count smallint, lapse_count smallint, completed_at timestamptz, ticket_id text)
  returns boolean
  language plpgsql immutable
as $$
begin
  if status = 'pending' and attempt_count = 0 and lapse_count = 0 then -- as each delivery is inserted
    return completed_at is null;
  end if;
  return attempt_count between 0 and 100
     and lapse_count between 0 and 100
     and case
           when status = 'pending' then completed_at is null
           when status = 'retryable' then completed_at is null and attempt_count > 0
           when status = 'sent' then completed_at is null and ticket_id is not null
           when status in ('ok', 'unconfirmed') then completed_at is not null and ticket_id is not null
           when status in ('invalid', 'failed', 'expired', 'skipped', 'cancelled', 'unknown') then completed_at is not null
           else false
         end;
end
$$;

revoke all on function relevo.is_possible_delivery from public;
