-- Returns whether caps hold for an event: not for an urgent one, a mandatory one, one that shows nothing, or one whose category has none.
create or replace function relevo.is_under_caps(e relevo.notification_events) returns boolean
  language sql stable
as $$
  select exists (select from relevo.caps c where c.category in ('', coalesce((e).category, '')) and ((e).project is null or c.project = (e).project))
     and (e).lane <> 'urgent' and (e).event_type <> 'relevo.news' and ((e).title <> '' or (e).body <> '')
     and relevo.category_rule((e).category) is distinct from 'mandatory'
$$;

revoke all on function relevo.is_under_caps from public;
