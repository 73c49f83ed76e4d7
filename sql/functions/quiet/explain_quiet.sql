-- Returns what a phone's quiet hours mean for an event at a time, and in which words; null if it has none then, or the event's type ignores them.
create or replace function relevo.explain_quiet(e relevo.notification_events, i relevo.device_installations, at timestamptz) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('verdict', n.verdict, 'until', n.until, 'local', w.local, 'zone', n.zone, 'zone_of', n.zone_of, 'hours_of', n.hours_of, 'due_at', n.due_at,
           'reason', format(case n.verdict when 'wait' then 'It waits for the end of quiet hours: they last until %s in %s (%s).'
                                           when 'silent' then 'It goes without a sound, for quiet hours last until %s in %s (%s).'
                                           else 'Its deadline lies in the quiet hours, which last until %s in %s (%s).' end, w.local, n.zone,
                            case n.zone_of when 'none' then 'nobody said another zone' else 'the zone of the ' || n.zone_of end))
    from relevo.quiet_now(e, i.quiet, i.owner_quiet, i.project, i.timezone, i.installation_id, at) n
    cross join lateral (select to_char(n.until at time zone n.zone, 'YYYY-MM-DD HH24:MI') as local) w
$$;

revoke all on function relevo.explain_quiet from public;
