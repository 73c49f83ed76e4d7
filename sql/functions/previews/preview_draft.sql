-- Returns whom an event would reach, in one project or in all; writes nothing.
create or replace function relevo.preview_draft(event jsonb, most int, of_project text) returns jsonb
  language plpgsql stable
as $$
declare
  e relevo.notification_events := relevo.draft_event(event, coalesce(of_project, event ->> 'project'));
  named uuid[] := array(select n.id::uuid from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as n(id));
  owners text[] := array(select jsonb_array_elements_text(coalesce(nullif(event -> 'owners', 'null'), '[]')));
begin
  return relevo.count_draft_targets(e, named, owners, most) || jsonb_build_object('unknown_installations', to_jsonb(array(
    select u.id from unnest(named) with ordinality as u(id, place)
      left join lateral (select true as known from relevo.device_installations d where d.installation_id = u.id and (e.project is null or d.project = e.project) offset 0) d on true
     where d.known is null order by u.place)));
end
$$;

revoke all on function relevo.preview_draft from public;
