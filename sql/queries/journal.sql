-- Statements between a claim and its requests: a claim that stands is locked KEY SHARE, so that a reaper, which locks it FOR UPDATE, comes
-- before the journal or sees it. Late tickets are looked for by the key of their delivery; one that is committed before is seen.

-- name: journal_plain_wave
-- Journals a wave before its POST if all of its pushes may be sent: it records the requests, or writes nothing and returns false.
select relevo.journal_plain_wave(
  claim => %(token)s, of_project => %(project)s, wave_ids => %(ids)s::bigint[], events => %(events)s::bigint[],
  request_ids => %(request_ids)s::uuid[], firsts => %(firsts)s::int[], lasts => %(lasts)s::int[], timeout_ms => %(timeout_ms)s, given_at => %(now)s);

-- name: phones_unchanged
-- Returns whether all phones of a wave whose journal is committed are as they were claimed, and none is in quiet hours since.
select relevo.phones_unchanged(%(installations)s::uuid[], %(versions)s::int[], %(events)s::bigint[], %(made)s)
   and not relevo.any_quiet(%(installations)s::uuid[], %(events)s::bigint[], %(now)s::timestamptz);

-- name: journal_wave
-- Journals a wave before its POST: records which deliveries go into which request, from a live claim with enough lease left. Returns the deliveries
-- that must not be sent any more: those with a late ticket, those past their deadline, and those of ended events. The phones are checked after the
-- commit.
with live as materialized (
  select c.token, c.worker_id, c.ids, exists (select from relevo.late_tickets) as any_late
    from relevo.claims c
   where c.token = %(token)s
     and c.leased_until > relevo.now(%(now)s) + %(timeout_ms)s * interval '1 millisecond'
     for key share
), kind as materialized ( -- what stands in the way of an event; each is found by its place, for a wave may hold as many as deliveries
  select array_agg(coalesce(relevo.event_obstacle(e.id, e.ended_at, e.deadline_at, relevo.now(%(now)s), false), 'send')
                   order by k.kind) as verdicts
    from unnest(%(kind_events)s::bigint[]) with ordinality as k(event_id, kind)
    left join lateral (select e.id, e.deadline_at, e.ended_at from relevo.notification_events e where e.id = k.event_id offset 0) e on true
), held as materialized (
  select w.request, w.event_day, w.id, case when t.ticket_id is not null then 'sent' else k.verdicts[w.kind] end as verdict, t.ticket_id
    from live
    cross join kind k
    cross join lateral (select w.*, (%(kind_days)s::date[])[w.kind] as event_day
                          from unnest(%(requests)s::int[], %(kinds)s::int[], %(ids)s::bigint[]) as w(request, kind, id)) w
    left join lateral (select l.ticket_id from relevo.late_tickets l
                         left join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                        where live.any_late and l.event_day = w.event_day and l.delivery_id = w.id
                          and l.ticket_id is distinct from d.provider_ticket_id
                        order by l.recorded_at desc limit 1) t on true
   where (w.id in (select u.id from live m cross join unnest(m.ids) as u(id))) is true
), journalled as (
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
  select (relevo.now(%(now)s) at time zone 'UTC')::date, (%(request_ids)s::uuid[])[h.request], live.token, live.worker_id, %(project)s,
         relevo.now(%(now)s), array_agg(h.event_day), array_agg(h.id)
    from live
    cross join held h
   where h.verdict = 'send'
   group by h.request, live.token, live.worker_id
)
-- what may not be sent, and one row with the number of those that may: from a live claim alone
select h.event_day, h.id, h.verdict, h.ticket_id from held h where h.verdict <> 'send'
union all
select null, (select count(*) from held h where h.verdict = 'send'), 'send', null from live;

-- name: look_at_phones
-- Checks the phones of a wave after its journal is committed, so it sees every change committed by then, and holds no lock that an app would wait
-- for. Returns the deliveries that must not be sent as claimed, and until when those wait that are now in quiet hours.
with kind as materialized (
  select array_agg(e.category order by k.kind) as categories, array_agg(relevo.category_rule(e.category) order by k.kind) as rules
    from unnest(%(kind_events)s::bigint[]) with ordinality as k(event_id, kind)
    left join lateral (select e.category from relevo.notification_events e where e.id = k.event_id offset 0) e on true
)
select w.event_day, w.id,
       case when i.handled_before >= w.created_at or i.handled then 'handled_elsewhere'
            else coalesce(relevo.obstacle_of_phone(i.installation_id, i.may_receive, i.unwanted),
                          case when i.token_version is distinct from w.token_version then 'token_changed' when n.verdict = 'wait' then 'quiet_hours' else 'quiet_expired' end)
       end as verdict,
       null as ticket_id, n.due_at
  from kind k
  cross join lateral (select w.*, (%(kind_days)s::date[])[w.kind] as event_day, (%(kind_made)s::timestamptz[])[w.kind] as created_at
                        from unnest(%(kinds)s::int[], %(ids)s::bigint[], %(installations)s::uuid[], %(versions)s::int[])
                          as w(kind, id, installation_id, token_version)) w
  left join lateral (select i.installation_id, i.handled_before, i.token_version, i.quiet, i.owner_quiet, i.project, i.timezone, relevo.may_receive(i) as may_receive,
                            relevo.unwanted(i.opt_outs, i.refused, i.accepted, k.categories[w.kind], k.rules[w.kind]) as unwanted,
                            i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                              select from relevo.event_completions h
                               where h.event_id = (%(kind_events)s::bigint[])[w.kind] and h.owner = i.owner and coalesce(h.project, i.project) = i.project) as handled
                       from relevo.device_installations i
                      where i.installation_id = w.installation_id
                     offset 0) i on true
  left join lateral (select n.verdict, n.due_at from relevo.notification_events e
                       cross join lateral relevo.quiet_now(e, i.quiet, i.owner_quiet, i.project, i.timezone, i.installation_id, relevo.now(%(now)s)) n
                      where (select exists (select from relevo.quiet_profiles)) and e.id = (%(kind_events)s::bigint[])[w.kind]
                        and i.installation_id is not null and n.verdict <> 'silent' offset 0) n on true
 where i.installation_id is null or i.token_version is distinct from w.token_version or not i.may_receive or i.handled_before >= w.created_at
    or i.handled
    or i.unwanted is not null or n.verdict is not null;

-- name: amend_journal
-- Takes what the look at the phones held back out of journalled requests.
update relevo.push_requests r
   set days = k.days, ids = k.ids
  from (select o.request_day, o.id, array_agg(u.event_day) as days, array_agg(u.id) as ids
          from relevo.push_requests o cross join unnest(o.days, o.ids) as u(event_day, id)
         where o.claim_token = %(token)s and o.answered_at is null and o.id = any (%(request_ids)s::uuid[]) and u.id <> all (%(held_back)s::bigint[])
         group by o.request_day, o.id) k
 where r.request_day = k.request_day and r.id = k.id and r.claim_token = %(token)s and r.answered_at is null;

-- name: read_journalled
-- Reads which deliveries a wave's requests really hold, where some were not ours any more.
select u.id from relevo.push_requests r cross join unnest(r.ids) as u(id)
 where r.claim_token = %(token)s and r.answered_at is null and r.id = any (%(request_ids)s::uuid[]);

-- name: mark_unsent
-- Notes that journalled requests were certainly not taken, so that whoever ends the claim does not take them for ambiguous; what was given up
-- because of them is opened again, and named for the queue.
with unsent as materialized (
  update relevo.push_requests r
     set answered_at = relevo.now(%(now)s), outcome = %(outcome)s
   where r.claim_token = %(token)s and r.answered_at is null and r.id = any (%(request_ids)s::uuid[])
  returning r.days, r.ids, r.journalled_at
), meant as (
  select array_agg(u.event_day) as days, array_agg(u.id) as ids, array_agg(unsent.journalled_at) as journalled
    from unsent cross join unnest(unsent.days, unsent.ids) as u(event_day, id)
)
select o.event_day, o.id, o.due_at from meant m cross join relevo.open_unsent(m.days, m.ids, m.journalled, %(now)s) o;
