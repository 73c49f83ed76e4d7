-- Opens deliveries again that were given up as unknown or failed because the answer of a request was not seen, and whose request is now known not
-- to have reached the push service. A delivery that waits for another try because of that request has its attempt back, unless it was claimed
-- since. Returns what is to be put into the queue. Chunks and dead letters are locked before deliveries.
create or replace function relevo.open_unsent(of_days date[], of_ids bigint[], journalled timestamptz[], given_at timestamptz)
  returns table (event_day date, id bigint, due_at timestamptz)
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  unsealed date[] := relevo.hold_open(array(select distinct n.event_day from unnest(of_days) as n(event_day))); -- others go to the archive
  waiting bigint[];
begin
  select array_agg(t.id) into waiting
    from (select array_agg(distinct d.notification_event_id) as events, array_agg(d.id) as ids
            from unnest(of_days, of_ids, journalled) as u(event_day, id, journalled_at)
            cross join lateral (select d.id, d.notification_event_id from relevo.notification_deliveries d
                                 where d.event_day = u.event_day and d.id = u.id and d.status = 'retryable' and d.last_error_code = 'answer_not_seen'
                                   and d.last_attempt_at = u.journalled_at offset 0) d
           where u.event_day = any (unsealed)) w
    cross join lateral relevo.take_from_queue(w.events, w.ids) t;
  return query
  with meant as materialized (
    select u.event_day, u.id, u.journalled_at
      from unnest(of_days, of_ids, journalled) as u(event_day, id, journalled_at)
     where u.event_day = any (unsealed)
     order by u.event_day, u.id
  ), dead as materialized (
    select l.event_day, l.delivery_id as id
      from meant u
      cross join lateral (select l.event_day, l.delivery_id from relevo.dead_letters l
                           where l.event_day = u.event_day and l.delivery_id = u.id
                             for update) l
  ), given_up as materialized (
    select d.event_day, d.id, d.status
      from meant u
      cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                           where d.event_day = u.event_day and d.id = u.id and d.last_error_code = 'answer_not_seen'
                             and (d.status in ('unknown', 'failed') or d.status = 'retryable' and d.id = any (waiting))
                             and d.last_attempt_at = u.journalled_at -- by that very request
                             for no key update) d
     where (select count(*) from dead) >= 0
  ), buried as (
    delete from relevo.dead_letters l using given_up g where l.event_day = any (array[g.event_day]) and l.delivery_id = g.id
  ), opened as (
    update relevo.notification_deliveries d
       set status = case when d.attempt_count > 1 then 'retryable' else 'pending' end, attempt_count = greatest(d.attempt_count - 1, 0),
           completed_at = null, updated_at = relevo.now(given_at), last_error_code = null, last_error_message = null
      from given_up g
     where d.event_day = any (array[g.event_day]) and d.id = g.id -- write by key
    returning d.event_day, d.id, d.notification_event_id as event_id, d.status, g.status as former_status
  ), progress as materialized (
    select relevo.move_counts(array_agg(o.event_id), array_agg(o.former_status), array_agg(o.status)) from opened o
  )
  select o.event_day, o.id, relevo.now(given_at) from opened o where (select count(*) from progress) > 0;
end
$$;

revoke all on function relevo.open_unsent from public;
