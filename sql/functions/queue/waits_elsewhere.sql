-- Returns what is open of some phones, among their newest deliveries, and waits where they no longer are. One of Expo's is sent from wherever
-- it waits, as 0.3.0 does.
create or replace function relevo.waits_elsewhere(phones uuid[]) returns table (id bigint, event_id bigint, installation_id uuid)
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
    select d.id, d.notification_event_id, p.installation_id
      from (select distinct u.id as installation_id from unnest(phones) as u(id)) p
      join relevo.device_installations i on i.installation_id = p.installation_id
      cross join lateral (select n.* from relevo.notification_deliveries n
                           where n.installation_id = p.installation_id order by n.id desc limit 1000) d
     where d.status in ('pending', 'retryable') and d.project <> relevo.sending_project(i.provider, i.project, i.part)
       and (i.provider <> 'expo' or d.project like '%::%');
end
$$;

revoke all on function relevo.waits_elsewhere from public;
