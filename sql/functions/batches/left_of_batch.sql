-- Returns which events of a batch are still worth telling: not what ended or passed its deadline, not what its owner handled on a phone, and of those with one collapse key
-- the last, unless a later one is told otherwise. Asked when it closes, and again right before it is sent.
create or replace function relevo.left_of_batch(b relevo.batches, at timestamptz) returns bigint[]
  language sql stable
as $$
  select array_agg(l.id order by l.place) filter (where l.is_last)
    from (select e.id, u.place, e.collapse is null or row_number() over (partition by e.collapse order by u.place desc) = 1 as is_last
          from unnest((b).events) with ordinality as u(id, place)
          cross join lateral (select e.id, e.event_day, e.collapse, e.scheduled_at from relevo.notification_events e
                               where e.id = u.id and e.ended_at is null and (e.deadline_at > at) is not false offset 0) e
         where (e.collapse is null or not relevo.is_gathered_later(b, e.id, e.collapse, e.scheduled_at))
           and exists (select from (select i.installation_id, i.owner, i.handled_before from relevo.device_installations i
                                     where (b).subject like 'o:%' and i.owner = substr((b).subject, 3)
                                     union all
                                    select i.installation_id, i.owner, i.handled_before from relevo.device_installations i
                                     where i.installation_id = case when (b).subject like 'i:%' then substr((b).subject, 3)::uuid end) i
                         cross join lateral (select d.created_at from relevo.notification_deliveries d
                                              where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = i.installation_id
                                                and d.last_error_code = 'batched' offset 0) d
                        where (i.handled_before >= d.created_at) is not true
                          and not exists (select from relevo.event_completions c where c.event_id = e.id and c.owner = i.owner)
                          and (e.collapse is null or not relevo.is_superseded(e.id, (b).event_type, e.collapse, e.scheduled_at, e.event_day, i.installation_id)))) l
$$;

revoke all on function relevo.left_of_batch from public;
