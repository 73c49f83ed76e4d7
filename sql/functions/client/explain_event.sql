-- Returns why an installation gets an enqueued event, or not.
create or replace function relevo.explain_event(of_event bigint, installation uuid) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  e relevo.notification_events;
begin
  select n.* into e from relevo.notification_events n where n.id = of_event;
  return relevo.explain_draft(e, exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = installation)
      or e.event_type = 'relevo.digest' and exists (
        select from relevo.digest_contents c join relevo.device_installations i on i.seq = c.seq where c.event_id = e.id and i.installation_id = installation),
    array(select o.owner from relevo.event_owners o where o.event_id = e.id
             and o.owner = (select i.owner from relevo.device_installations i where i.installation_id = installation)), installation);
end
$$;

revoke all on function relevo.explain_event from public;
