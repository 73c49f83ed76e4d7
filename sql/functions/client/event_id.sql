-- Returns the id of an event by its type and key, archived or not, or null.
create or replace function relevo.event_id(of_type text, of_key text) returns bigint
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select e.id from relevo.notification_events e
      where e.event_type = of_type and e.event_key = any (array[of_key, relevo.hidden_key(of_type, of_key)]) limit 1),
    (select k.event_id from relevo.event_keys k
      where k.event_type = of_type and k.event_key = any (array[of_key, relevo.hidden_key(of_type, of_key)]) limit 1))
$$;

revoke all on function relevo.event_id from public;
