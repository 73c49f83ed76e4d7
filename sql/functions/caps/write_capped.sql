-- Writes the deliveries of a slice that are above a cap: they are skipped, and in the inbox; also if the cap is
-- taken away at this moment.
create or replace function relevo.write_capped(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], above int[])
  returns void
  language sql volatile
as $$
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane, at_most_once, deadline_at,
                                              created_at, status, completed_at, updated_at, last_error_code, last_error_message)
  select e.event_day, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now(), 'skipped', at, at,
         'capped', 'There is no room for it' || coalesce(': ' || relevo.cap_in_words(c), '') || '.'
    from unnest(phones, providers, projects, above) as u(phone, provider, project, cap)
    left join relevo.caps c on c.id = u.cap
   where u.cap is not null;
  insert into relevo.event_progress_deltas (event_id, status, deliveries) select e.id, 'skipped', count(u.cap)::int from unnest(above) as u(cap);
$$;

revoke all on function relevo.write_capped from public;
