-- Returns the slots of some digests, and makes missing ones. It keeps them from being pruned until the transaction ends, because an unused slot may
-- disappear at any moment until it is locked.
create or replace function relevo.open_slots(places relevo.digest_place[], at timestamptz) returns setof relevo.digest_slots
  language plpgsql volatile
as $$
declare
  missing boolean := true;
begin
  while missing loop
    insert into relevo.digest_slots (project, delivery, zone, closes_at)
    select w.project, w.delivery, w.zone, relevo.next_digest(w.delivery, w.zone, at)
      from (select distinct p.project, p.delivery, p.zone from unnest(places) p where p.delivery is not null order by 1, 2, 3) w
     where not exists (select from relevo.digest_slots s where s.project = w.project and s.delivery = w.delivery and s.zone = w.zone)
    on conflict do nothing;
    perform from relevo.digest_slots s
      where (s.project, s.delivery, s.zone) in (select p.project, p.delivery, p.zone from unnest(places) p)
      order by s.project, s.delivery, s.zone for key share;
    missing := exists (select from unnest(places) p
                        where p.delivery is not null
                          and not exists (select from relevo.digest_slots s where s.project = p.project and s.delivery = p.delivery and s.zone = p.zone));
  end loop;
  return query
    select s.* from relevo.digest_slots s where (s.project, s.delivery, s.zone) in (select p.project, p.delivery, p.zone from unnest(places) p);
end
$$;

revoke all on function relevo.open_slots from public;
