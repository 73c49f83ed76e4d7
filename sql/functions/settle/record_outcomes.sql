-- Records what follows from deliveries that were just written, by a settle, by receipts, by a late ticket or by the end of their claim. Events
-- and tenders are locked last, in the order that is said in queries/settle.sql.
create or replace function relevo.record_outcomes(written relevo.written_delivery[], found_by text, receipt_ms bigint, at timestamptz) returns void
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
begin
  -- Receipts of what was sent are asked for later, a hundred at a time.
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select w.project, at + receipt_ms * interval '1 millisecond', at, array_agg(w.event_day), array_agg(w.id), array_agg(w.installation_id),
         array_agg(w.ticket_id), array_agg(w.token_version), array_agg(w.attempt)
    from (select w.*, (row_number() over () - 1) / 100 as piece from unnest(written) w where w.status = 'sent') w
   group by w.project, w.piece;

  -- Deliveries that failed for good can be redriven. An existing dead letter of one is stray.
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.error_code, at from unnest(written) w where w.status = 'failed'
  on conflict (event_day, delivery_id) do update
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at;

  -- Operators read what went wrong with each attempt; only the first twenty of a delivery are kept.
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
  select w.event_day, w.id, f.n, at, w.attempt, found_by, w.status, w.said_code, w.said_message, w.request_id
    from unnest(written) w
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n from relevo.failed_attempts f where f.event_day = w.event_day and f.delivery_id = w.id) f
   where w.has_failed and f.n <= 20
  on conflict do nothing;

  -- The counts of the events, which a reaper folds.
  perform relevo.move_counts(array_agg(c.event_id), array_agg(c.former_status), array_agg(c.status), array_agg(c.n))
     from (select w.event_id, w.former_status, w.status, count(*)::int as n from unnest(written) w group by w.event_id, w.former_status, w.status) c;

  -- The project's brake and breaker go by these. Deliveries sent before are now confirmed.
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed, gone)
  select w.project, at, count(*) filter (where w.status in ('sent', 'ok') and w.former_status <> 'sent'), count(*),
         count(*) filter (where w.status = 'invalid'), count(*) filter (where w.status = 'ok' and w.former_status = 'sent'),
         count(*) filter (where w.status = 'failed'),
         case when bool_or(w.status = 'invalid') then relevo.hashed_owners(array_agg(w.installation_id) filter (where w.status = 'invalid'), w.project) end
    from unnest(written) w where w.is_answer group by w.project;

  -- A late ticket that a delivery now has is no evidence any more.
  if exists (select from relevo.late_tickets) then
    delete from relevo.late_tickets l using unnest(written) w
     where l.event_day = w.event_day and l.delivery_id = w.id and l.ticket_id = w.ticket_id;
  end if;

  -- Open deliveries return to the queue.
  perform relevo.queue_deliveries(array_agg(w.event_day), array_agg(w.id), array_agg(w.due_at))
     from unnest(written) w where w.status in ('pending', 'retryable') having count(*) > 0;

  perform relevo.note_sent(array_agg(distinct w.event_id), at)
     from unnest(written) w where w.status in ('sent', 'ok') and w.former_status <> 'sent' having count(*) > 0;
end
$$;

revoke all on function relevo.record_outcomes from public;
