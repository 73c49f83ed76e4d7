-- Claims sent deliveries of a project whose receipts are due, the longest due first: as many requests' worth as fit, at least one; a row for
-- each.
create or replace function relevo.claim_awaited(
  claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int, shards int, lease_ms int
) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions int[], attempts smallint[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
  with oldest as materialized (
    select o.id
      from (select w.id, sum(cardinality(w.ids)) over (order by w.look_at, w.id) as upto,
                   row_number() over (order by w.look_at, w.id) as place
              from (select r.id, r.look_at, r.ids
                      from relevo.awaited_receipts r
                     where r.project = of_project and r.look_at <= relevo.now(given_at) and r.claim_token is null
                       and relevo.in_shard(r.id, shard, shards)
                     order by r.look_at, r.id
                     limit most) w) o
     where o.upto <= most or o.place = 1
  ), taken as materialized (
    update relevo.awaited_receipts r
       set claim_token = claim
     where r.id = any (array(select w.id from oldest o cross join lateral (
                               select w.id from relevo.awaited_receipts w where w.id = o.id and w.claim_token is null
                                  for no key update skip locked) w))
    returning r.look_at, r.id, r.sent_at, r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts
  ), written as (
    insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
    select claim, worker, 'receipt', relevo.now(given_at), claim_awaited.lease_ms,
           relevo.now(given_at) + claim_awaited.lease_ms * interval '1 millisecond', array_agg(u.event_day), array_agg(u.id)
      from taken t cross join unnest(t.days, t.ids) as u(event_day, id)
    having count(*) > 0
  )
  select t.sent_at, t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts from taken t order by t.look_at, t.id;
end
$$;

revoke all on function relevo.claim_awaited from public;
