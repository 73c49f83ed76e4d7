-- Returns what an event means in quiet hours: wait for their end, go silently, or take no notice of them. What shows nothing disturbs nobody.
create or replace function relevo.quiet_rule(e relevo.notification_events, of_type text) returns text language sql immutable
  return case when (e).event_type = 'relevo.news' or (e).title = '' and (e).body = '' then 'ignore'
              else coalesce(of_type, case (e).lane when 'urgent' then 'ignore' else 'wait' end) end;

revoke all on function relevo.quiet_rule from public;
