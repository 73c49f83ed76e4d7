-- Returns the pushes that shadow mode kept from being sent within a time, each with whom it is compared by (its phone, or its owner) and what by (key or
-- title, with the type if asked).
create or replace function relevo.kept_pushes(of_project text, from_at timestamptz, to_at timestamptz, by_phone boolean, by_key boolean, with_type boolean)
  returns table (id bigint, event_id bigint, installation_id uuid, owner text, at timestamptz, event_type text, event_key text, title text, subject text,
                 what text)
  language plpgsql stable
  set enable_hashjoin = on -- many with many
as $$
begin
  return query
    select d.id, d.notification_event_id, d.installation_id, coalesce(b.owner, i.owner), d.completed_at, e.event_type, e.event_key, e.title,
           case when by_phone then d.installation_id::text else coalesce(b.owner, i.owner, d.installation_id::text) end,
           case when with_type then e.event_type || E'\n' else '' end || case when by_key then e.event_key else lower(btrim(e.title)) end
      from relevo.notification_deliveries d
      join relevo.notification_events e on e.id = d.notification_event_id
      left join relevo.device_installations i on i.installation_id = d.installation_id
      left join relevo.inboxes b on b.id = d.inbox_id
     where d.event_day between from_at::date - 31 and to_at::date + 1 and d.status = 'skipped' and d.last_error_code = 'shadow'
       and d.completed_at between from_at and to_at and not relevo.is_news_project(d.project)
       and (of_project is null or relevo.name_of_project(d.project) = of_project);
end
$$;

revoke all on function relevo.kept_pushes from public;
