-- Gathers an event for the digests of some phones, of which `deliveries` says what they ask for; without it they ask for what their preferences say. `inboxes` are those of
-- their owners. Returns the phones
-- whose digest comes only after the event's deadline: for these it is not gathered.
create or replace function relevo.gather(e relevo.notification_events, phones uuid[], deliveries text[], inboxes bigint[], at timestamptz) returns uuid[]
  language plpgsql volatile
  set enable_nestloop = off set enable_hashjoin = on set enable_sort = on set jit = off -- what has to be looked up one by one is lateral
as $$
declare
  places relevo.digest_place[];
  too_late uuid[];
begin
  if deliveries is not null then
    places := array(
      with asked as materialized (
        select i.seq, i.installation_id, i.project, i.timezone, i.quiet, i.owner_quiet, u.delivery
          from unnest(phones, deliveries) as u(id, delivery)
          cross join lateral (select i.seq, i.installation_id, i.project, i.timezone, i.quiet, i.owner_quiet from relevo.device_installations i
                               where i.installation_id = u.id offset 0) i
      ), kinds as materialized ( -- many phones have one zone, which is looked up once
        select k.*, relevo.zone_of(k.timezone, k.quiet, k.owner_quiet, k.project) as zone
          from (select distinct a.timezone, a.quiet, a.owner_quiet, a.project from asked a offset 0) k
      )
      select row(a.seq, e.id, a.installation_id, a.project, a.delivery, k.zone)::relevo.digest_place
        from asked a
        join kinds k on k.project = a.project and coalesce(k.timezone, '') = coalesce(a.timezone, '') and coalesce(k.quiet, 0) = coalesce(a.quiet, 0)
                    and coalesce(k.owner_quiet, 0) = coalesce(a.owner_quiet, 0));
  else
    places := array(select row(p.seq, p.event_id, p.installation_id, p.project, coalesce(p.delivery, 'daily 08:00'), p.zone)::relevo.digest_place
                      from (select array_agg(i.seq) as seqs from relevo.device_installations i where i.installation_id = any (phones)) i
                      cross join lateral relevo.digest_places(i.seqs, array_fill(e.id, array[cardinality(i.seqs)])) p);
  end if;
  with slots as materialized (
    select * from relevo.open_slots(places, at)
  ), gathered as (
    insert into relevo.digest_items (slot_id, seq, event_id, inbox_id)
    select s.id, p.seq, e.id, u.inbox_id
      from unnest(places) p
      join slots s on s.project = p.project and s.delivery = p.delivery and s.zone = p.zone
      join unnest(phones, inboxes) as u(id, inbox_id) on u.id = p.installation_id
     where (s.closes_at < e.deadline_at) is not false
    on conflict do nothing
  )
  select array_agg(p.installation_id) into too_late
    from unnest(places) p join slots s on s.project = p.project and s.delivery = p.delivery and s.zone = p.zone
   where s.closes_at >= e.deadline_at;
  return too_late;
end
$$;

revoke all on function relevo.gather from public;
