-- Returns which digest each of some events belongs to on the phone beside it, by the phone's enabled preferences: the most frequent of those that
-- match, if all that match ask for digests; else the most frequent of all; else one at 08:00. Returns none for an event for matching phones that no
-- preference matches any more.
create or replace function relevo.digest_places(seqs bigint[], events bigint[]) returns setof relevo.digest_place
  language sql stable
  set enable_nestloop = off set enable_hashjoin = on set enable_sort = on set jit = off -- each row is looked up once, lateral
as $$
  with phones as materialized (
    select i.i from (select distinct u.seq from unnest(seqs) as u(seq)) u
      cross join lateral (select i from relevo.device_installations i where i.seq = u.seq offset 0) i
  ), kinds as materialized ( -- many phones have one zone, which is looked up once
    select k.*, relevo.zone_of(k.timezone, k.quiet, k.owner_quiet, k.project) as zone
      from (select distinct (n.i).timezone, (n.i).quiet, (n.i).owner_quiet, (n.i).project from phones n offset 0) k
  ), asked as materialized (
    select (n.i).seq, p.p, relevo.delivery_rank((p.p).delivery) as rank
      from phones n
      cross join lateral (select p from relevo.notification_preferences p where p.installation_id = (n.i).installation_id and p.enabled offset 0) p
  ), soonest as (
    select a.seq, (array_agg((a.p).delivery order by a.rank))[1] as delivery from asked a where (a.p).delivery is not null group by a.seq
  ), matching as materialized (
    select e.e from (select distinct u.id from unnest(events) as u(id)) u
      cross join lateral (select e from relevo.notification_events e where e.id = u.id and e.audience = 'matching' offset 0) e
  ), matched as (
    select u.seq, u.event_id, bool_or((a.p).delivery is null) as is_now, (array_agg((a.p).delivery order by a.rank))[1] as delivery
      from unnest(seqs, events) as u(seq, event_id)
      join matching e on (e.e).id = u.event_id
      join asked a on a.seq = u.seq
     where relevo.preference_matches(a.p, e.e)
     group by u.seq, u.event_id
  )
  select u.seq, u.event_id, (n.i).installation_id, (n.i).project,
         case when (e.e).id is not null and m.seq is null then null
              when m.is_now is not false then coalesce(s.delivery, 'daily 08:00')
              else m.delivery end, k.zone
    from unnest(seqs, events) as u(seq, event_id)
    join phones n on (n.i).seq = u.seq
    join kinds k on k.project = (n.i).project and coalesce(k.timezone, '') = coalesce((n.i).timezone, '') and coalesce(k.quiet, 0) = coalesce((n.i).quiet, 0)
                and coalesce(k.owner_quiet, 0) = coalesce((n.i).owner_quiet, 0)
    left join matching e on (e.e).id = u.event_id
    left join matched m on m.seq = u.seq and m.event_id = u.event_id
    left join soonest s on s.seq = u.seq
$$;

revoke all on function relevo.digest_places from public;
