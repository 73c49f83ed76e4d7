-- Makes personal events due now that wait for quiet hours of a project whose hours changed. It reads a bounded number of chunks, and returns 1 if
-- it did, or 0 if no project is left. After a minute it goes through all of them again, because a fan-out that read the former hours may commit
-- later.
create or replace function relevo.recheck_projects(most int, given_at timestamptz) returns int
  language plpgsql volatile
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off -- lookups only
as $$
declare
  at timestamptz := relevo.now(given_at);
  change relevo.quiet_changes;
  seen bigint[];
begin
  select c.* into change from relevo.quiet_changes c where c.look_at <= at order by c.look_at, c.project limit 1 for update skip locked;
  if not found then
    return 0;
  end if;
  seen := array(select q.id from relevo.due_chunks q where q.id > change.chunk order by q.id limit most);
  perform relevo.make_due(array(
    select q.id from unnest(seen) as s(id)
      cross join lateral (select * from relevo.due_chunks q where q.id = s.id and q.due_at > now() offset 0) q
      cross join lateral (select from relevo.device_installations i where i.installation_id = q.installations[1] and i.project = change.project offset 0) i
      cross join lateral (select from relevo.notification_events e where e.id = q.event_id and e.audience = 'installations' offset 0) e));
  if cardinality(seen) >= most then
    update relevo.quiet_changes c set chunk = seen[most] where c.project = change.project;
  elsif change.changed_at > at - interval '1 minute' then
    update relevo.quiet_changes c set chunk = 0, look_at = change.changed_at + interval '1 minute' where c.project = change.project;
  else
    delete from relevo.quiet_changes c where c.project = change.project;
  end if;
  return 1;
end
$$;

revoke all on function relevo.recheck_projects from public;
