-- Returns why an installation would get an event that was not enqueued, or not.
create or replace function relevo.explain(event jsonb, installation uuid) returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if installation is null then
    perform relevo.refuse('installation must be given');
  end if;
  return relevo.explain_draft(relevo.draft_event(event, event ->> 'project'),
    coalesce(lower(event ->> 'installations')::jsonb @> to_jsonb(array[installation::text]), false),
    array(select jsonb_array_elements_text(coalesce(nullif(event -> 'owners', 'null'), '[]'))), installation);
end
$$;

revoke all on function relevo.explain from public;
