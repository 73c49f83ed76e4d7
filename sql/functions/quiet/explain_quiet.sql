-- Returns what a phone's quiet hours do to an event at a time, whose hours, zone and rule these are, and a sentence; null if nothing. A delivery that waits for an
-- end which hours that were changed since gave it waits until then at most.
create or replace function relevo.explain_quiet(e relevo.notification_events, i relevo.device_installations, delivery bigint, at timestamptz) returns jsonb
  language plpgsql stable
as $$
declare
  t relevo.event_types;
  n record;
  q record;
  edge timestamptz;
  local text;
  whose text;
  said text;
  by_rule jsonb;
begin
  select x.* into t from relevo.event_types x where x.event_type = e.event_type;
  select x.* into n from relevo.quiet_now(e, i.quiet, i.owner_quiet, i.project, i.timezone, i.installation_id, at) x;
  select coalesce(x.zone, relevo.zone_of(i.timezone, null, null, null)) as zone,
         coalesce(x.zone_of, case when relevo.known_zone(i.timezone) is not null then 'phone' else 'none' end) as zone_of, x.hours_of, x.windows into q
    from (select) one left join relevo.quiet_of(i.quiet, i.owner_quiet, i.project, i.timezone) x on true;
  select c.due_at into edge from relevo.due_chunks c
   where delivery is not null and c.event_id = e.id and delivery = any (c.ids) and relevo.waits_for_quiet(c) limit 1;
  whose := case q.zone_of when 'none' then 'no time zone is set' else 'the zone of the ' || q.zone_of end;
  by_rule := case when relevo.category_quiet(e.category) is not null then jsonb_build_object('rule_of', 'category', 'category', e.category)
                  else jsonb_build_object('rule_of', case when t.quiet is not null then 'event_type' else 'lane' end) end;
  said := case by_rule ->> 'rule_of' when 'category' then format(' The category %s sets this rule.', e.category)
                                     when 'event_type' then ' Its event type sets this rule.' else '' end;
  if n.verdict is distinct from 'expired'
     and edge > coalesce(case when n.verdict = 'wait' then n.until + coalesce(t.quiet_spread_s, 300) * interval '1 second' end, at) then
    local := to_char(edge at time zone q.zone, 'YYYY-MM-DD HH24:MI');
    return by_rule || jsonb_build_object('verdict', 'wait', 'until', edge, 'local', local, 'zone', q.zone, 'zone_of', q.zone_of, 'hours_of', q.hours_of,
      'due_at', edge, 'former', true,
      'reason', format('It waits until %s in %s (%s). Its quiet hours were changed meanwhile; Relevo checks them again then.', local, q.zone, whose));
  end if;
  if n.verdict is null then
    if q.windows @> relevo.minute_of_week(at at time zone q.zone) and (e.title <> '' or e.body <> '') then
      return by_rule || jsonb_build_object('verdict', 'ignore', 'reason', 'It makes a sound in quiet hours.' || coalesce(nullif(said, ''), ' Its lane sets this rule.'));
    end if;
    return null;
  end if;
  local := to_char(n.until at time zone n.zone, 'YYYY-MM-DD HH24:MI');
  return by_rule || jsonb_build_object('verdict', n.verdict, 'until', n.until, 'local', local, 'zone', n.zone, 'zone_of', n.zone_of, 'hours_of', n.hours_of,
    'due_at', n.due_at,
    'reason', format(case n.verdict when 'wait' then 'It waits for the end of quiet hours: they last until %s in %s (%s).'
                                    when 'silent' then 'It is sent without a sound: quiet hours last until %s in %s (%s).'
                                    else 'Its deadline lies in the quiet hours, which last until %s in %s (%s).' end, local, n.zone, whose) || said);
end
$$;

revoke all on function relevo.explain_quiet from public;
