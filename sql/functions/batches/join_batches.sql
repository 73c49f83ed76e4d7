-- Puts an event into the batches of some phones' owners, or of the phones if it names them, and returns of each phone whether it is told by the
-- batch; not if it is the first of one and goes out at once. A batch that is full closes next. A transaction that closes one of them meanwhile is waited for: then a new one
-- is opened. A later slice of the event finds the batch that an earlier one joined, also if it closed since. A phone that is gone by now, or whose event's type
-- gathers no longer, is not told by a batch: the answer has one entry for each phone.
create or replace function relevo.join_batches(e relevo.notification_events, phones uuid[], at timestamptz) returns boolean[]
  language sql volatile
as $$
  with asked as materialized (
    select u.place, coalesce(case when o.is_owned then 'o:' || i.owner end, 'i:' || u.id) as subject
      from unnest(phones) with ordinality as u(id, place)
      cross join lateral (select i.owner from relevo.device_installations i where i.installation_id = u.id offset 0) i
      cross join (select exists (select from relevo.event_owners o where o.event_id = (e).id) as is_owned) o
  ), known as materialized (
    select b.subject, b.first_event = (e).id as is_first
      from (select distinct a.subject from asked a where (e).fanout_cursor > 0) a
      join relevo.batches b on b.subject = a.subject and b.event_type = (e).event_type and b.key = coalesce((e).batch ->> 'key', '')
     where (e).id = any (b.events) or b.first_event = (e).id
  ), joined as (
    insert into relevo.batches as b (event_type, key, project, category, subject, opened_at, closes_at, first_event, events)
    select (e).event_type, coalesce((e).batch ->> 'key', ''), coalesce((e).project, ''), coalesce((e).category, ''), a.subject, at, at + t.batch_window_s * interval '1 second',
           case when t.batch_first then (e).id end, case when t.batch_first then '{}' else array[(e).id] end
      from (select distinct a.subject from asked a where a.subject not in (select k.subject from known k)) a
      join relevo.event_types t on t.event_type = (e).event_type and t.batch_window_s is not null
     order by a.subject
    on conflict (subject, event_type, key, project, category) where closed_at is null do update
       set events = b.events || (e).id,
           closes_at = case when cardinality(b.events) >= 999 then at
                            else greatest(b.closes_at, (select least(at + t.batch_window_s * interval '1 second', b.opened_at + t.batch_longest_s * interval '1 second')
                                                          from relevo.event_types t where t.event_type = (e).event_type and t.batch_longest_s is not null)) end
    returning b.subject, b.first_event = (e).id as is_first
  )
  select array_agg(j.subject is not null and j.is_first is not true order by u.place)
    from unnest(phones) with ordinality as u(id, place)
    left join asked a on a.place = u.place
    left join (select * from known union all select * from joined) j on j.subject = a.subject
$$;

revoke all on function relevo.join_batches from public;
