-- Returns whether something of a month is still to be written: in a queue, a claim, an awaited receipt, or left of a deleted event.
create or replace function relevo.is_open(of_entity text, of_month date) returns boolean language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off -- lookups only
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  answer boolean;
begin
  if of_entity = 'notification_deliveries' then
    return exists (select from relevo.due_chunks q where q.event_day >= of_month and q.event_day < next_month)
        or exists (select from relevo.awaited_receipts r cross join unnest(r.days) as d(day) where d.day >= of_month and d.day < next_month)
        or exists (select from relevo.claims c cross join unnest(c.days) as d(day) where d.day >= of_month and d.day < next_month)
        or exists (select from relevo.deleted_events d where d.event_day >= of_month and d.event_day < next_month);
  end if;
  execute format($sql$select exists (select from relevo.claims c join relevo.%I r on r.claim_token = c.token and r.answered_at is null)$sql$,
                 of_entity || to_char(of_month, '_YYYY_MM')) into answer;
  return answer;
end
$$;

revoke all on function relevo.is_open from public;
