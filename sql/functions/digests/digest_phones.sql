-- Returns the next phones of a slot that closes: its followers, those that left it lately, and those for which caps left something. Of each from which window on it is to be told, and
-- whether something changed about it, so that what it was told has to be looked up.
create or replace function relevo.digest_phones(s relevo.digest_slots, most int) returns table (seq bigint, installation_id uuid, lower bigint, changed boolean)
  language sql stable
as $$
  select u.seq, u.installation_id, least(c.from_number, s.after_number), c.changed
    from (select f.seq, f.installation_id
            from (select f.seq, f.installation_id from relevo.digest_followers f
                   where f.project = s.project and f.delivery = s.delivery and f.zone = s.zone and f.seq > s.phone_cursor and f.seq <= s.upto_seq
                   order by f.seq limit most) f
          union
          select c.seq, c.installation_id
            from (select c.seq, c.installation_id from relevo.digest_changes c
                   where c.project = s.project and c.delivery = s.delivery and c.zone = s.zone and c.seq > s.phone_cursor and c.seq <= s.upto_seq
                   order by c.seq limit most) c
          union
          select x.seq, x.installation_id
            from (select distinct x.seq, x.installation_id from relevo.digest_extras x
                   where x.project = s.project and x.delivery = s.delivery and x.zone = s.zone and x.seq > s.phone_cursor and x.seq <= s.upto_seq
                   order by x.seq limit most) x
           order by 1 limit most) u
    cross join lateral (select min(c.from_number) filter (where c.at_number >= s.after_number - 1) as from_number, count(*) > 0 as changed
                          from relevo.digest_changes c where c.seq = u.seq offset 0) c
$$;

revoke all on function relevo.digest_phones from public;
