-- Gathers an event for the phones of a slice that are told by digests, and by which each, writes their deliveries, and returns the other phones of the slice.
create or replace function relevo.write_gathered(e relevo.notification_events, at timestamptz, inout phones uuid[], inout providers text[], inout projects text[],
                                                 inout hours int[], inout inboxes bigint[], gathered uuid[], deliveries text[])
  language plpgsql volatile
  set enable_nestloop = off set enable_hashjoin = on set enable_sort = on set jit = off -- many with many
as $$
declare
  too_late uuid[];
  n record;
begin
  select array_agg(u.phone) filter (where g.phone is not null) as ids, array_agg(g.delivery) filter (where g.phone is not null) as deliveries,
         array_agg(u.provider) filter (where g.phone is not null) as providers, array_agg(u.project) filter (where g.phone is not null) as projects,
         array_agg(u.phone) filter (where g.phone is null) as phones, array_agg(u.provider) filter (where g.phone is null) as other_providers,
         array_agg(u.project) filter (where g.phone is null) as other_projects, array_agg(u.own) filter (where g.phone is null) as hours,
         array_agg(u.inbox_id) filter (where g.phone is not null) as inboxes, array_agg(u.inbox_id) filter (where g.phone is null) as other_inboxes
    into n
    from unnest(phones, providers, projects, hours, inboxes) as u(phone, provider, project, own, inbox_id)
    left join unnest(gathered, deliveries) as g(phone, delivery) on g.phone = u.phone;
  if n.ids is not null then
    too_late := relevo.gather(e, n.ids, n.deliveries, n.inboxes, at);
    perform relevo.write_skipped(e, at, n.ids, n.providers, n.projects, c.codes, array(select relevo.why_undigested(u.code) from unnest(c.codes) with ordinality as u(code, place) order by u.place), n.inboxes)
       from (select array(select case when u.phone = any (too_late) then 'deadline_before_digest' else 'in_digest' end
                            from unnest(n.ids) with ordinality as u(phone, place) order by u.place) as codes) c;
  end if;
  phones := n.phones;
  providers := n.other_providers;
  projects := n.other_projects;
  hours := case when hours is not null then n.hours end;
  inboxes := case when inboxes is not null then n.other_inboxes end;
end
$$;

revoke all on function relevo.write_gathered from public;
