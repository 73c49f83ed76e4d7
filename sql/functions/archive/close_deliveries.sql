-- Ends some of what is still open in an old month and not claimed, chunk by chunk, and returns how many deliveries it took out of the queues.
-- Those of deleted events count, too, so that a caller that repeats this comes to the end.
create or replace function relevo.close_deliveries(of_month date, most integer, at timestamptz) returns integer language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  ended int;
begin
  with unsent as materialized (
    delete from relevo.due_chunks q
     where q.id = any (array(select o.id from relevo.due_chunks o where o.event_day >= of_month and o.event_day < next_month
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning q.event_day, q.ids
  ), awaited as materialized (
    delete from relevo.awaited_receipts r
     where r.id = any (array(select o.id from relevo.awaited_receipts o
                              where o.claim_token is null and exists (select from unnest(o.days) as d(day) where d.day >= of_month and d.day < next_month)
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning r.*
  ), kept as ( -- what was sent together with them, for an event of another month, is still awaited
    insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
    select a.project, a.look_at, a.sent_at, array_agg(u.event_day), array_agg(u.id), array_agg(u.installation_id), array_agg(u.ticket),
           array_agg(u.version), array_agg(u.attempt)
      from awaited a
      cross join unnest(a.days, a.ids, a.installations, a.tickets, a.versions, a.attempts) as u(event_day, id, installation_id, ticket, version, attempt)
     where not (u.event_day >= of_month and u.event_day < next_month)
     group by a.id, a.project, a.look_at, a.sent_at
  ), open as materialized (
    select u.event_day, u.ids as id, 'expired' as status, 'It was not sent before its month was archived.' as why
      from (select q.event_day, unnest(q.ids) as ids from unsent q) u
    union all
    select u.event_day, u.id, 'unconfirmed', 'No receipt came before its month was archived.'
      from awaited a cross join unnest(a.days, a.ids) as u(event_day, id) where u.event_day >= of_month and u.event_day < next_month
  ), locked as materialized (
    select d.event_day, d.id, d.status as former_status, o.status, o.why
      from (select * from open order by event_day, id) o
      cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                           where d.event_day = o.event_day and d.id = o.id and d.completed_at is null for no key update) d
  ), closed as (
    update relevo.notification_deliveries d
       set status = l.status, completed_at = relevo.now(at), updated_at = relevo.now(at), last_error_code = 'retired', last_error_message = l.why
      from locked l
     where d.event_day = l.event_day and d.id = l.id
    returning d.notification_event_id as event_id, d.status, l.former_status
  ), told as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select m.event_id, m.status, sum(m.n)::int
      from (select c.event_id, c.status, 1 as n from closed c
            union all
            select c.event_id, c.former_status, -1 from closed c) m
     group by m.event_id, m.status
  )
  select count(*)::int into ended from open;
  return ended;
end
$$;

revoke all on function relevo.close_deliveries from public;
