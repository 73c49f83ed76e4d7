-- Adds an event that is above a cap to the next digests of phones: of each to the slot that closes next among those it follows, else to one of its own at
-- 08:00 where it is. A slot that nobody used may be gone at any moment, until it is locked.
create or replace function relevo.add_to_digests(e relevo.notification_events, phones uuid[], at timestamptz) returns void
  language plpgsql volatile
as $$
declare
  last_number bigint := coalesce(pg_sequence_last_value('relevo.digest_numbers'), 0);
  n record;
  missing boolean := true;
begin
  select array_agg(coalesce(f.delivery, 'daily 08:00') order by i.seq) as deliveries, array_agg(coalesce(f.zone, relevo.digest_zone(i.i)) order by i.seq) as zones,
         array_agg(i.project order by i.seq) as projects, array_agg(i.seq order by i.seq) as seqs, array_agg(i.installation_id order by i.seq) as ids
    into n
    from (select i.seq, i.project, i.installation_id, i from relevo.device_installations i where i.installation_id = any (phones) offset 0) i
    left join lateral (select f.delivery, f.zone from relevo.digest_followers f
                         join relevo.digest_slots s on s.project = f.project and s.delivery = f.delivery and s.zone = f.zone
                        where f.installation_id = i.installation_id order by s.closes_at, f.delivery limit 1) f on true;
  while missing loop
    insert into relevo.digest_slots (project, delivery, zone, closes_at, after_number)
    select w.project, w.delivery, w.zone, relevo.next_digest(w.delivery, w.zone, at), last_number
      from (select distinct u.project, u.delivery, u.zone from unnest(n.projects, n.deliveries, n.zones) as u(project, delivery, zone) order by 1, 2, 3) w
    on conflict do nothing;
    perform from relevo.digest_slots s
      where (s.project, s.delivery, s.zone) in (select u.project, u.delivery, u.zone from unnest(n.projects, n.deliveries, n.zones) as u(project, delivery, zone))
      order by s.project, s.delivery, s.zone for key share;
    missing := exists (select from unnest(n.projects, n.deliveries, n.zones) as u(project, delivery, zone)
                        where not exists (select from relevo.digest_slots s where s.project = u.project and s.delivery = u.delivery and s.zone = u.zone));
  end loop;
  insert into relevo.digest_extras (project, delivery, zone, seq, event_id, installation_id)
  select u.project, u.delivery, u.zone, u.seq, e.id, u.id
    from unnest(n.projects, n.deliveries, n.zones, n.seqs, n.ids) as u(project, delivery, zone, seq, id)
  on conflict do nothing;
end
$$;

revoke all on function relevo.add_to_digests from public;
