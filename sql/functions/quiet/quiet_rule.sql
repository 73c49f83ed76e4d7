-- Returns what an event does in quiet hours: wait for their end, go silently, or ignore them. The category's rule comes first, then the type's, then the lane's.
-- An event that shows nothing disturbs nobody.
create or replace function relevo.quiet_rule(e relevo.notification_events, of_type text) returns text language sql stable
  return case when (e).event_type = 'relevo.news' or (e).title = '' and (e).body = '' then 'ignore'
              else coalesce(relevo.category_quiet((e).category), of_type, case (e).lane when 'urgent' then 'ignore' else 'wait' end) end;

revoke all on function relevo.quiet_rule from public;
