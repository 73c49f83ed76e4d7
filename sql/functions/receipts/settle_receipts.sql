-- Writes what receipts say of deliveries that the claim holds, ends the claim, and returns how many became what; `sent` are those whose receipt
-- is missing and asked for again. Answers come in sorts, as in a settle; `waiting` is what is said of a receipt that is not there yet.
create or replace function relevo.settle_receipts(
  claim uuid, of_days date[], of_ids bigint[], kinds int[],
  sort_statuses text[], sort_spent int[], sort_paced boolean[], sort_codes text[], sort_messages text[], sort_floors_ms bigint[],
  most_attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, receipt_ms bigint, give_up_ms bigint, given_at timestamptz)
  returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  at timestamptz := relevo.now(given_at);
  last_look interval := give_up_ms * interval '0.958 millisecond'; -- 23 h, if receipts are cleared after 24 h
  pause_ms bigint := (select max(s.floor_ms) from unnest(sort_statuses, sort_floors_ms) as s(said, floor_ms) where s.said = 'waiting');
  held_ids bigint[];
  over_days date[];
  over_ids bigint[];
  missing int;
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for; it may have ended it.
  perform from relevo.claims c where c.token = claim for no key update;
  if not found then
    return;
  end if;

  -- Missing receipts are asked for later: each look comes twice as long after the push as the one before, the last one shortly before receipts
  -- are cleared. Then it is over. Receipts that were not asked for keep their time.
  with taken as (
    delete from relevo.awaited_receipts r where r.claim_token = claim returning r.*
  ), member as materialized (
    select u.*, t.project, t.look_at, t.sent_at, (u.id in (select a.id from unnest(of_ids) as a(id))) is true as was_asked_for,
           (u.id in (select a.id from unnest(of_ids, kinds) as a(id, kind) where sort_statuses[a.kind] <> 'waiting')) is true as is_answered
      from taken t
      cross join unnest(t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts)
        as u(event_day, id, installation_id, ticket_id, token_version, attempt_count)
  ), later as materialized (
    select m.*, m.was_asked_for and at >= m.sent_at + give_up_ms * interval '1 millisecond' as is_over,
           case when not m.was_asked_for then m.look_at
                when pause_ms > 0 then at + pause_ms * interval '1 millisecond'
                when at >= m.sent_at + last_look then m.sent_at + give_up_ms * interval '1 millisecond'
                else least(m.sent_at + 2 * greatest(at - m.sent_at, receipt_ms * interval '1 millisecond'),
                           m.sent_at + last_look) end as next_look_at
      from member m where not m.is_answered
  ), put_back as (
    insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
    select l.project, l.next_look_at, l.sent_at, array_agg(l.event_day), array_agg(l.id), array_agg(l.installation_id), array_agg(l.ticket_id),
           array_agg(l.token_version), array_agg(l.attempt_count)
      from (select l.*, (row_number() over (partition by l.project, l.next_look_at, l.sent_at) - 1) / 100 as piece from later l where not l.is_over) l
     group by l.project, l.next_look_at, l.sent_at, l.piece
  )
  select (select array_agg(m.id) from member m), array_agg(l.event_day) filter (where l.is_over), array_agg(l.id) filter (where l.is_over),
         count(*) filter (where not l.is_over)
    into held_ids, over_days, over_ids, missing
    from later l;

  -- A retry gets its time here, and its status: it may be the last, or come too late.
  with sort as materialized ( -- one chance for each sort: what failed together is tried again together
    select o.*, random() as chance
      from unnest(sort_statuses, sort_spent, sort_paced, sort_codes, sort_messages, sort_floors_ms)
        with ordinality as o(said, spent, paced, code, message, floor_ms, kind)
     union all
    select 'unconfirmed', 0, false, null, null, 0, 0, 0
  ), answer as materialized (
    select a.event_day, a.id, s.*
      from (select * from unnest(of_days, of_ids, kinds) as u(event_day, id, kind)
             where (u.id in (select h.id from unnest(held_ids) as h(id))) is true -- hashed list
             union all
            select o.event_day, o.id, 0 from unnest(over_days, over_ids) as o(event_day, id)) a
      join sort s on s.kind = a.kind
     where s.said <> 'waiting'
     order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized (
    select a.*, g.former_attempts, g.retry_at,
           case a.said when 'retryable' then relevo.retry_status(a.paced, greatest(g.former_attempts + a.spent, 0), g.of_attempts, g.retry_at, g.deadline_at)
                       else a.said end as final_status
      from answer a
      left join lateral (select d.attempt_count as former_attempts, coalesce(t.max_attempts, most_attempts) as of_attempts,
                                at + case when a.paced
                                  then relevo.retry_delay_by(coalesce(t.retry_multiplier, 2), d.attempt_count, coalesce(t.retry_base_ms, base_ms),
                                                          coalesce(t.retry_max_ms, greatest(max_ms, t.retry_base_ms)),
                                                          coalesce(t.retry_jitter_ms, jitter_ms), a.floor_ms, a.chance)
                                  else a.floor_ms * interval '1 millisecond' end as retry_at,
                                (select e.deadline_at from relevo.notification_events e where e.id = d.notification_event_id) as deadline_at
                           from relevo.notification_deliveries d
                           left join relevo.event_types t on t.event_type = d.event_type
                          where a.said = 'retryable' and d.event_day = a.event_day and d.id = a.id
                         offset 0) g on true
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           project = case when v.said = 'retryable' and v.code = 'token_changed' then coalesce((select relevo.sending_project(i.provider, i.project, i.part)
                            from relevo.device_installations i where i.installation_id = d.installation_id), d.project) else d.project end,
           provider = case when v.said = 'retryable' and v.code = 'token_changed' then coalesce((select i.provider
                             from relevo.device_installations i where i.installation_id = d.installation_id), d.provider) else d.provider end,
           attempt_count = greatest(d.attempt_count + v.spent, 0),
           lapse_count = case v.said when 'retryable' then 0 else d.lapse_count end,
           completed_at = case when v.final_status not in ('pending', 'retryable') then at end,
           updated_at = at,
           last_error_code = coalesce(v.code, d.last_error_code),
           last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
           provider_receipt_id = case v.said when 'unconfirmed' then d.provider_receipt_id else d.provider_ticket_id end
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id and d.status = 'sent' -- write by key
    returning d.*, v.said, v.former_attempts, v.retry_at, v.code, v.message
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version,
                       case w.said when 'retryable' then w.former_attempts else w.attempt_count end, 'sent', w.status,
                       case when w.status in ('pending', 'retryable') then w.retry_at end, w.said <> 'unconfirmed',
                       w.said in ('retryable', 'invalid', 'failed'), w.last_error_code, w.code, w.message, null)::relevo.written_delivery)
    into written from done w;

  perform relevo.record_outcomes(written, 'receipt', null, at);
  delete from relevo.claims c where c.token = claim;
  return query
    select w.status, count(*)::int from unnest(written) w group by w.status
     union all
    select 'sent', missing where missing > 0;
end
$$;

revoke all on function relevo.settle_receipts from public;
