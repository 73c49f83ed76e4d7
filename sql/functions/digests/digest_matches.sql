-- Returns of some phones of a slot that closes what its digest tells each: of the events in its window, by their place there, those that its
-- preferences match and that no sooner one takes. A phone of which something changed is told what it was told neither by a push nor by a digest.
-- `extra_events` were above a cap of the phones beside them, and are told, too. Phones that ask for the same are told the same, and looked at once. Events and preferences are joined by the buckets of both, as fan-out does;
-- `mine` and `sooner` are places.
create or replace function relevo.digest_matches(s relevo.digest_slots, seqs bigint[], ids uuid[], lowers bigint[], changes boolean[], told_by bigint, at timestamptz,
                                                 extra_seqs bigint[], extra_events bigint[])
  returns table (seq bigint, installation_id uuid, provider text, project text, total int, offsets int[], inbox_id bigint)
  language sql stable
  set enable_nestloop = off set jit = off -- what has to be looked up one by one is lateral
as $$
  with events as materialized (
    select * from relevo.digest_window(s.project, (select min(l.lower) from unnest(lowers) as l(lower)), s.upto_number, at)
  ), buckets as materialized (
    select w.place, w.number, (w.e).fanout_upto as upto, (w.e).category, w.rule, b.bucket
      from events w cross join lateral (select unnest(relevo.event_buckets(w.e)) as bucket offset 0) b
  ), phones as materialized (
    select g.seq, g.id, g.lower, g.changed, i.i, case when g.changed or g.seq > (select min((w.e).fanout_upto) from events w) then g.seq::text else a.asked end as alike
      from unnest(seqs, ids, lowers, changes) as g(seq, id, lower, changed)
      cross join lateral (select i from relevo.device_installations i where i.installation_id = g.id offset 0) i
      cross join lateral (
        select string_agg(row(p.topics, p.keywords, p.rubro_prefix, p.region, p.tipo, p.monto_min, p.monto_max, p.moneda, p.delivery)::text, ' ' order by p.name)
               || row((i.i).opt_outs, (i.i).refused, (i.i).accepted)::text as asked
          from relevo.notification_preferences p where p.installation_id = g.id and p.enabled offset 0) a
     where relevo.may_receive(i.i) and (i.i).project = s.project
  ), firsts as materialized (
    select distinct on (p.alike) p.* from phones p where p.alike is not null order by p.alike, p.seq
  ), asked as materialized (
    select f.seq, f.lower, (f.i).opt_outs, (f.i).refused, (f.i).accepted, p.p, b.bucket, b.sure,
           (p.p).delivery = s.delivery or f.changed and (p.p).delivery is null as is_mine,
           relevo.delivery_rank((p.p).delivery) < relevo.delivery_rank(s.delivery) and (not f.changed or (p.p).delivery is not null) as is_sooner
      from firsts f
      cross join lateral (select p from relevo.notification_preferences p where p.installation_id = f.id and p.enabled offset 0) p
      cross join lateral (select b.bucket, b.sure from relevo.preference_buckets(p.p) b offset 0) b
  ), matched as (
    select a.seq, b.place, a.is_mine, a.is_sooner
      from asked a join buckets b on b.bucket = a.bucket
     where a.sure and b.number > a.lower and b.upto >= a.seq and relevo.unwanted(a.opt_outs, a.refused, a.accepted, b.category, b.rule) is null
    union all
    select a.seq, b.place, a.is_mine, a.is_sooner
      from asked a join buckets b on b.bucket = a.bucket join events w on w.place = b.place
     where not a.sure and b.number > a.lower and b.upto >= a.seq and relevo.unwanted(a.opt_outs, a.refused, a.accepted, b.category, b.rule) is null
       and relevo.preference_matches(a.p, w.e)
  ), found as (
    select m.seq, array_agg(distinct m.place) filter (where m.is_mine) as mine, array_agg(m.place) filter (where m.is_sooner) as sooner
      from matched m group by m.seq
  ), told as materialized (
    select f.alike, t.events, cardinality(t.events) as total, array(select (told_by - u.id)::int from unnest(t.events[:1000]) with ordinality as u(id, n) order by u.n) as offsets
      from firsts f join found n on n.seq = f.seq and n.mine is not null
      cross join lateral (select relevo.digest_items(array(select (w.e).id from events w order by w.place), n.mine, n.sooner, f.changed, f.seq, f.id, at)
                            as events offset 0) t
  ), extras as materialized (
    select x.seq, array_agg(x.event_id) as events from unnest(extra_seqs, extra_events) as x(seq, event_id) join phones p on p.seq = x.seq
     where relevo.wants_extra(p.i, x.event_id) group by x.seq
  ), extended as (
    select p.seq, p.id, p.i, t.total, t.offsets from phones p join told t on t.alike = p.alike and t.total > 0
     where p.seq not in (select x.seq from extras x)
    union all
    select p.seq, p.id, p.i, cardinality(b.events), array(select (told_by - u.id)::int from unnest(b.events[:1000]) with ordinality as u(id, n) order by u.n)
      from extras x join phones p on p.seq = x.seq left join told t on t.alike = p.alike
      cross join lateral (select relevo.best_first(x.events || t.events, at) as events offset 0) b
     where b.events <> '{}'
  )
  select x.seq, x.id, (x.i).provider, relevo.sending_project((x.i).provider, (x.i).project, (x.i).part), x.total, x.offsets, (x.i).inbox_id from extended x
$$;

revoke all on function relevo.digest_matches from public;
