-- Returns what an event's type makes of the quiet hours of a phone, and when it may be sent to; also when they end, by which zone, and whose hours
-- and zone these are. No row if it has none now, or the type ignores them.
create or replace function relevo.quiet_now(e relevo.notification_events, own int, of_owner int, of_project text, timezone text, phone uuid, at timestamptz)
  returns table (verdict text, due_at timestamptz, until timestamptz, zone text, hours_of text, zone_of text)
  language plpgsql stable
as $$
#variable_conflict use_column
declare
  q record;
  t relevo.event_types;
begin
  select * into q from relevo.quiet_of(own, of_owner, of_project, timezone);
  if q.windows is null or not q.windows @> relevo.minute_of_week(at at time zone q.zone) then
    return;
  end if;
  select n.* into t from relevo.event_types n where n.event_type = e.event_type;
  return query
    select v.verdict, case v.verdict when 'wait' then relevo.spread_quiet(v.due_at, phone, t.quiet_spread_s, e.deadline_at) else v.due_at end,
           u.until, q.zone, q.hours_of, q.zone_of
      from (select relevo.end_of_quiet(q.windows, q.zone, at) as until) u
      cross join lateral relevo.quiet_verdict(relevo.quiet_rule(e, t.quiet), t.quiet_max_wait_s, t.quiet_deadline, e.scheduled_at, e.deadline_at,
                                              u.until, at) v
     where v.verdict is not null;
end
$$;

revoke all on function relevo.quiet_now from public;
