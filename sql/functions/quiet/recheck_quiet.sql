-- Makes personal events due now that wait for quiet hours of these phones, all of one owner: the worker that claims them reads the present hours.
-- Deliveries for a former owner of a phone continue to wait: the former owner may have the phone again before they are due.
create or replace function relevo.recheck_quiet(phones uuid[], of_owner text) returns void
  language sql volatile
as $$
  select relevo.make_due(array(
    select q.id from (select a.event_id from relevo.event_audience a where a.installation_id = any (phones)
                      union
                      select o.event_id from relevo.event_owners o where o.owner = of_owner) e
      cross join lateral (select q.id from relevo.due_chunks q
                           where q.event_id = e.event_id and q.due_at > now() and q.installations && phones
                             and exists (select from unnest(q.installations, q.inboxes) as d(phone, made_for)
                                           join relevo.device_installations i on i.installation_id = d.phone
                                          where d.phone = any (phones)
                                            and (d.made_for is null or not relevo.is_for_another('installations', d.made_for, null, d.phone, i.inbox_id, i.owner_since)))) q))
$$;

revoke all on function relevo.recheck_quiet from public;
