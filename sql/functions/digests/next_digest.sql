-- Returns when digests of a kind close next after a moment, at the phone's place. A local time that the clock skips counts right after the skip;
-- one that occurs twice counts once. Hours are those of UTC, and a zone that this server does not know counts as UTC.
create or replace function relevo.next_digest(delivery text, zone text, after timestamptz) returns timestamptz
  language sql stable
as $$
  select case when delivery = 'hourly' then date_trunc('hour', after, 'UTC') + interval '1 hour'
              else (select min(t.at)
                      from (select coalesce(relevo.known_zone(zone), 'UTC') as name) z
                      cross join generate_series(0, 8) as n
                      cross join lateral (select (after at time zone z.name)::date - 1 + n as day) d
                      cross join lateral (select (d.day + right(delivery, 5)::time) at time zone z.name as at) t
                     where t.at > after
                       and (delivery like 'daily%' or to_char(d.day, 'dy') = split_part(delivery, ' ', 2))) end
$$;

revoke all on function relevo.next_digest from public;
