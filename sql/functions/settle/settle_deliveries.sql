-- Writes what was answered of deliveries, as far as the claim still holds them, takes them out of it, and returns how many became what.
-- A claim in shadow takes no answer of a push service, and one that is live none of shadow mode. What a claim in shadow would try again after the
-- mode ended is over with it, but for what waits for a time of its own.
-- Answers come in sorts: what was said, in which request, of which type. `kinds` says of each answer which sort it is of.
create or replace function relevo.settle_deliveries(
  claim uuid, of_days date[], of_ids bigint[], kinds int[], tickets text[], versions int[],
  sort_statuses text[], sort_spent int[], sort_paced boolean[], sort_codes text[], sort_messages text[], sort_floors_ms bigint[],
  sort_projects text[], sort_not_befores timestamptz[], sort_types text[], sort_formers text[], sort_requests uuid[],
  request_ids uuid[], request_outcomes text[], most_attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, receipt_ms bigint,
  finish boolean, given_at timestamptz) returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  at timestamptz := relevo.now(given_at);
  held_days date[];
  held_ids bigint[];
  late_tickets text[];
  shadowed boolean;
  shadow_left boolean := false;
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for; the statements below see the claim as it is then.
  select c.days, c.ids, c.in_shadow into held_days, held_ids, shadowed from relevo.claims c where c.token = claim for no key update;
  if (shadowed or 'shadow' = any (sort_codes)) and exists (
    select from unnest(sort_statuses, sort_spent, sort_codes) as s(said, spent, code)
     where case when shadowed then s.spent > 0 and s.said in ('sent', 'ok') else not shadowed and s.said = 'skipped' and s.code = 'shadow' end) then
    raise exception using errcode = 'data_exception', message = format('claim %s mixes what was sent with what was not, in shadow mode', claim);
  end if;
  if shadowed and of_ids <> '{}' then
    select relevo.shadow_until(d.project) <= at into shadow_left
      from relevo.notification_deliveries d where d.event_day = of_days[1] and d.id = of_ids[1];
  end if;
  if shadow_left then
    for k in 1 .. cardinality(sort_statuses) loop
      if sort_statuses[k] = 'retryable' and sort_not_befores[k] is null then
        sort_statuses[k] := 'skipped';
        sort_codes[k] := 'shadow';
        sort_messages[k] := null;
      end if;
    end loop;
  end if;

  -- A delivery that ends unsent was sent after all if a ticket came late. The deliveries are locked first: a ticket is kept before that, and seen here, or
  -- comes later and finds how they ended.
  if exists (select from unnest(kinds) as k(kind) where sort_spent[k.kind] = 0 and sort_statuses[k.kind] not in ('sent', 'retryable')) then
    perform from (select a.event_day, a.id from unnest(of_days, of_ids) as a(event_day, id) where a.id = any (held_ids) order by a.event_day, a.id) a
      cross join lateral (select from relevo.notification_deliveries d where d.event_day = a.event_day and d.id = a.id for no key update) d;
  end if;
  if exists (select from relevo.late_tickets) then
    select array_agg(l.ticket_id order by a.place) into late_tickets
      from unnest(of_days, of_ids, kinds) with ordinality as a(event_day, id, kind, place)
      left join lateral (select l.ticket_id
                           from relevo.late_tickets l join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                          where sort_spent[a.kind] = 0 and sort_statuses[a.kind] not in ('sent', 'retryable')
                            and l.event_day = a.event_day and l.delivery_id = a.id and l.ticket_id is distinct from d.provider_ticket_id
                          order by l.recorded_at desc limit 1) l on true;
  end if;

  -- A retry gets its time here, and its status: it may be the last, or come too late.
  with sort as materialized ( -- one chance for each sort: what failed together is tried again together
    select o.*, random() as chance, coalesce(t.max_attempts, most_attempts) as of_attempts,
           coalesce(t.retry_base_ms, base_ms) as of_base_ms, coalesce(t.retry_max_ms, greatest(max_ms, t.retry_base_ms)) as of_max_ms,
           coalesce(t.retry_jitter_ms, jitter_ms) as of_jitter_ms, coalesce(t.retry_multiplier, 2) as of_multiplier
      from unnest(sort_statuses, sort_spent, sort_paced, sort_codes, sort_messages, sort_floors_ms, sort_projects, sort_not_befores, sort_types,
                  sort_formers, sort_requests)
        with ordinality as o(said, spent, paced, code, message, floor_ms, project, not_before, event_type, former_status, request_id, kind)
      left join relevo.event_types t on t.event_type = o.event_type
  ), answer as materialized (
    select a.event_day, a.id, coalesce(a.ticket_id, a.late_ticket) as ticket_id, a.token_version, s.*,
           case when a.late_ticket is not null then 'sent' else s.said end as outcome
      from unnest(of_days, of_ids, kinds, tickets, versions, late_tickets) as a(event_day, id, kind, ticket_id, token_version, late_ticket)
      join sort s on s.kind = a.kind
     where (a.id in (select h.id from unnest(held_ids) as h(id))) is true -- hashed list
     order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized (
    select a.*, g.retry_at, case a.outcome when 'retryable' then relevo.retry_status(a.paced, g.attempts, a.of_attempts, g.retry_at, g.deadline_at)
                                           else a.outcome end as final_status
      from answer a
      -- kept subquery: flattened, it can become batch x batch comparisons
      left join lateral (select d.attempt_count + a.spent as attempts,
                                greatest(a.not_before, at + case when a.paced
                                  then relevo.retry_delay_by(a.of_multiplier, d.attempt_count + a.spent, a.of_base_ms, a.of_max_ms, a.of_jitter_ms, a.floor_ms, a.chance)
                                  else a.floor_ms * interval '1 millisecond' end) as retry_at, -- what spent nothing waits no longer than it was told to
                                (select e.deadline_at from relevo.notification_events e where e.id = d.notification_event_id) as deadline_at
                           from relevo.notification_deliveries d
                          where a.outcome = 'retryable' and d.event_day = a.event_day and d.id = a.id
                         offset 0) g on true
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           project = case when v.outcome <> 'retryable' then d.project
                          when v.code = 'token_changed' then coalesce((select relevo.sending_project(i.provider, i.project, i.part)
                            from relevo.device_installations i where i.installation_id = d.installation_id), d.project)
                          else coalesce(v.project, d.project) end,
           provider = case when v.outcome = 'retryable' and v.code = 'token_changed' then coalesce((select i.provider
                        from relevo.device_installations i where i.installation_id = d.installation_id), d.provider) else d.provider end,
           attempt_count = d.attempt_count + v.spent,
           lapse_count = 0,
           last_attempt_at = case when v.spent > 0 then at else d.last_attempt_at end,
           completed_at = case when v.final_status not in ('pending', 'retryable', 'sent') then at end,
           updated_at = at,
           last_error_code = case when v.final_status not in ('sent', 'ok') then coalesce(v.code, d.last_error_code) end,
           last_error_message = case when v.final_status in ('sent', 'ok') then null when v.code is not null then v.message
                                     else coalesce(v.message, d.last_error_message) end,
           provider_ticket_id = case when v.outcome = 'retryable' then d.provider_ticket_id else coalesce(v.ticket_id, d.provider_ticket_id) end,
           token_version = coalesce(v.token_version, d.token_version)
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id -- write by key
    returning d.*, v.former_status, v.retry_at, v.spent, v.code, v.message, v.request_id
  ), repeated as (
    insert into relevo.event_repeat_deltas (event_id, repeats)
    select w.notification_event_id, count(*)::int from done w where w.spent > 0 and w.former_status = 'retryable' group by w.notification_event_id
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status, case when w.status in ('pending', 'retryable') then w.retry_at end, w.spent > 0 or w.status = 'sent',
                       w.status = 'failed' or w.spent > 0 and w.status in ('retryable', 'pending', 'invalid', 'expired', 'unknown'),
                       w.last_error_code, w.code, w.message, w.request_id)::relevo.written_delivery)
    into written from done w;

  perform relevo.record_outcomes(written, 'dispatch', receipt_ms, at);
  update relevo.push_requests r set answered_at = at, outcome = q.outcome
    from unnest(request_ids, request_outcomes) as q(id, outcome)
   where r.claim_token = claim and r.answered_at is null and r.id = q.id;

  -- The claim keeps the rest, with a longer lease, or goes.
  select coalesce(array_agg(h.event_day), '{}'), coalesce(array_agg(h.id), '{}') into held_days, held_ids
    from unnest(held_days, held_ids) as h(event_day, id) where (h.id in (select a.id from unnest(of_ids) as a(id))) is not true;
  if finish and held_ids = '{}' then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c set days = held_days, ids = held_ids, leased_until = relevo.longer_lease(c, at) where c.token = claim;
  end if;
  return query select w.status, count(*)::int from unnest(written) w group by w.status;
end
$$;

revoke all on function relevo.settle_deliveries from public;
