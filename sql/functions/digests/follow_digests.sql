-- Puts phones into the slots of their digests anew, after something changed about them. Slots that they had or have are noted with how far
-- they were told, for a phone that goes from one to another misses nothing of what lies between. Rows are written in one order, so that there is no deadlock.
create or replace function relevo.follow_digests(phones uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  last_number bigint := coalesce(pg_sequence_last_value('relevo.digest_numbers'), 0);
  missing boolean := true;
begin
  insert into relevo.digest_changes as c (project, delivery, zone, seq, installation_id, from_number, at_number)
  select f.project, f.delivery, f.zone, f.seq, f.installation_id,
         least(s.after_number, (select min(o.from_number) from relevo.digest_changes o -- what it brought from a slot before, and was not told yet
                                 where o.seq = f.seq and o.at_number >= s.after_number - 1)), last_number
    from relevo.digest_followers f
    join relevo.device_installations i on i.seq = f.seq -- of one that is forgotten nothing is noted
    join relevo.digest_slots s on s.project = f.project and s.delivery = f.delivery and s.zone = f.zone
   where f.installation_id = any (phones)
   order by 1, 2, 3, 4
  on conflict (project, delivery, zone, seq) do update
     set from_number = least(c.from_number, excluded.from_number), at_number = excluded.at_number, changed_at = excluded.changed_at;
  perform from relevo.digest_followers f where f.installation_id = any (phones) order by f.project, f.delivery, f.zone, f.seq for update;
  delete from relevo.digest_followers f where f.installation_id = any (phones);
  while missing loop -- a slot that nobody followed may be gone at any moment, until it is locked
    insert into relevo.digest_slots (project, delivery, zone, closes_at, after_number)
    select w.project, w.delivery, w.zone, relevo.next_digest(w.delivery, w.zone, now()), last_number
      from (select distinct w.project, w.delivery, w.zone from relevo.wanted_digests(phones) w order by 1, 2, 3) w
    on conflict do nothing;
    perform from relevo.digest_slots s
      where (s.project, s.delivery, s.zone) in (select w.project, w.delivery, w.zone from relevo.wanted_digests(phones) w)
      order by s.project, s.delivery, s.zone for key share;
    missing := exists (select from relevo.wanted_digests(phones) w
                        where not exists (select from relevo.digest_slots s
                                           where s.project = w.project and s.delivery = w.delivery and s.zone = w.zone));
  end loop;
  insert into relevo.digest_followers (project, delivery, zone, seq, installation_id)
  select w.project, w.delivery, w.zone, w.seq, w.installation_id from relevo.wanted_digests(phones) w order by 1, 2, 3, 4
  on conflict do nothing;
  insert into relevo.digest_changes as c (project, delivery, zone, seq, installation_id, from_number, at_number)
  select w.project, w.delivery, w.zone, w.seq, w.installation_id, s.after_number, last_number
    from relevo.wanted_digests(phones) w
    join relevo.digest_slots s on s.project = w.project and s.delivery = w.delivery and s.zone = w.zone
   order by 1, 2, 3, 4
  on conflict (project, delivery, zone, seq) do update
     set from_number = least(c.from_number, excluded.from_number), at_number = excluded.at_number, changed_at = excluded.changed_at;
  if exists (select from relevo.digest_extras x where x.installation_id = any (phones)) then
    perform relevo.move_extras(phones);
  end if;
end
$$;

revoke all on function relevo.follow_digests from public;
