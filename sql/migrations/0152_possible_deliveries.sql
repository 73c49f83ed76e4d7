-- needs relevo 0.3.0
-- Gives deliveries one CHECK, a function, in place of sixteen: PostgreSQL parses the text of each again for every statement that writes a delivery.

create function relevo.is_possible_delivery(status text, attempt_count smallint, lapse_count smallint, completed_at timestamptz, ticket_id text)
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

alter table relevo.notification_deliveries
  drop constraint notification_deliveries_event_type_check,
  drop constraint notification_deliveries_provider_check,
  drop constraint notification_deliveries_project_check,
  drop constraint notification_deliveries_lane_check,
  drop constraint notification_deliveries_status_check,
  drop constraint notification_deliveries_attempt_count_check,
  drop constraint notification_deliveries_lapse_count_check,
  drop constraint notification_deliveries_last_error_code_check,
  drop constraint notification_deliveries_last_error_message_check,
  drop constraint notification_deliveries_provider_ticket_id_check,
  drop constraint notification_deliveries_provider_receipt_id_check,
  drop constraint notification_deliveries_opened_action_check,
  drop constraint final_exactly_when_completed,
  drop constraint retryable_was_attempted,
  drop constraint sent_has_a_ticket,
  drop constraint times_fit_an_archive,
  add constraint delivery_is_possible check (relevo.is_possible_delivery(status, attempt_count, lapse_count, completed_at, provider_ticket_id)) not valid;
