-- Returns the event types that differ from the settings, each with all that may differ; null: the general setting applies.
create or replace function relevo.list_event_types() returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(to_jsonb(t) - 'own' order by t.event_type), '[]') from relevo.event_types t
$$;

revoke all on function relevo.list_event_types from public;
