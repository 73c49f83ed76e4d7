-- Returns whether an event is gathered with others of its type, and told together with them.
create or replace function relevo.is_batched(e relevo.notification_events) returns boolean
  language sql stable
as $$
  select (e).audience = 'installations' and (e).batch_id is null
     and exists (select from relevo.event_types t where t.event_type = (e).event_type and t.batch_window_s is not null)
$$;

revoke all on function relevo.is_batched from public;
