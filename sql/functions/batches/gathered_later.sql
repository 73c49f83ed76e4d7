-- Returns the events with one of some collapse keys that are in batches of the same person which were opened after this one and reach all of its phones. One whose deadline
-- passed before it was told takes nobody's place.
create or replace function relevo.gathered_later(b relevo.batches, collapses text[], at timestamptz)
  returns table (event_id bigint, collapse text, scheduled_at timestamptz)
  language sql stable
as $$
  select l.id, l.collapse, l.scheduled_at
    from relevo.batches o
    cross join lateral unnest(o.events) as u(id)
    cross join lateral (select l.id, l.collapse, l.scheduled_at, l.ended_at, l.deadline_at from relevo.notification_events l where l.id = u.id offset 0) l
   where o.subject = (b).subject and o.event_type = (b).event_type and o.id > (b).id and o.project in ('', (b).project)
     and l.collapse = any (collapses) and l.ended_at is null and ((l.deadline_at > at) is not false or not relevo.is_batch_unsent(o))
$$;

revoke all on function relevo.gathered_later from public;
