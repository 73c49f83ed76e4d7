-- Makes personal events that wait for the end of quiet hours of these phones, all of one owner, due now: the worker that claims them reads the hours as they are then.
create or replace function relevo.recheck_quiet(phones uuid[], of_owner text) returns void
  language sql volatile
as $$
  select relevo.make_due(array(
    select q.id from (select a.event_id from relevo.event_audience a where a.installation_id = any (phones)
                      union
                      select o.event_id from relevo.event_owners o where o.owner = of_owner) e
      cross join lateral (select q.id from relevo.due_chunks q
                           where q.event_id = e.event_id and q.due_at > now() and q.installations && phones) q))
$$;

revoke all on function relevo.recheck_quiet from public;
