-- Returns the event of a project that has one of two keys, its own or the hidden one, archived or not; or no row. It looks key by key.
create or replace function relevo.known_key(of_type text, own_key text, hidden_key text, of_project text) returns table(event_id bigint, content_hash text)
  language sql stable
as $$
  (select n.id, n.content_hash from relevo.notification_events n
    where n.event_type = of_type and n.event_key = own_key and coalesce(n.project, '') = coalesce(of_project, ''))
  union all
  (select n.id, n.content_hash from relevo.notification_events n
    where n.event_type = of_type and n.event_key = hidden_key and coalesce(n.project, '') = coalesce(of_project, ''))
  union all
  (select k.event_id, k.content_hash from relevo.event_keys k
    where k.event_type = of_type and k.event_key = own_key and coalesce(k.project, '') = coalesce(of_project, ''))
  union all
  (select k.event_id, k.content_hash from relevo.event_keys k
    where k.event_type = of_type and k.event_key = hidden_key and coalesce(k.project, '') = coalesce(of_project, ''))
  limit 1
$$;

revoke all on function relevo.known_key from public;
