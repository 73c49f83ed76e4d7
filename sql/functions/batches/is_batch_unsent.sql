-- Returns whether a batch still gathers, or its push was not yet sent to every phone.
create or replace function relevo.is_batch_unsent(b relevo.batches) returns boolean
  language sql stable
as $$
  select (b).closed_at is null
      or exists (select from relevo.notification_events e where e.id = (b).event_id and e.ended_at is null and (e.state <> 'fanned' or relevo.is_anything_open(e.id)))
$$;

revoke all on function relevo.is_batch_unsent from public;
