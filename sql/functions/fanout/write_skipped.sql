-- Writes the deliveries of a slice that are not pushed by themselves, each with why not (a code and a sentence); they are in the inbox.
create or replace function relevo.write_skipped(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], codes text[], whys text[],
                                                inboxes bigint[])
  returns void
  language sql volatile
as $$
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane, at_most_once, deadline_at,
                                              created_at, status, completed_at, updated_at, last_error_code, last_error_message, inbox_id)
  select e.event_day, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now(), 'skipped', at, at, u.code, u.why, u.inbox_id
    from unnest(phones, providers, projects, codes, whys, inboxes) as u(phone, provider, project, code, why, inbox_id)
   where u.code is not null;
  insert into relevo.event_progress_deltas (event_id, status, deliveries) select e.id, 'skipped', count(u.code)::int from unnest(codes) as u(code);
$$;

revoke all on function relevo.write_skipped from public;
