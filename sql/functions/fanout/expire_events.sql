-- Ends events whose deadline passed before they fanned out.
create or replace function relevo.expire_events(late bigint[], at timestamptz) returns void language sql volatile
as $$
  update relevo.notification_events e
     set state = 'cancelled', ended_at = at, end_reason = 'its deadline passed before it fanned out', updated_at = at
   where e.id = any (late)
$$;

revoke all on function relevo.expire_events from public;
