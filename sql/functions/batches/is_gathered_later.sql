-- Returns whether a later event with the same collapse key is in a batch of the same person that was opened after this one.
create or replace function relevo.is_gathered_later(b relevo.batches, of_event bigint, of_collapse text, due_at timestamptz) returns boolean
  language sql stable
as $$
  select exists (
    select from relevo.batches o
      cross join lateral unnest(o.events) as u(id)
      cross join lateral (select l.id, l.collapse, l.scheduled_at, l.ended_at from relevo.notification_events l where l.id = u.id offset 0) l
     where o.subject = (b).subject and o.event_type = (b).event_type and o.id > (b).id
       and l.collapse = of_collapse and l.ended_at is null and (l.scheduled_at, l.id) > (due_at, of_event))
$$;

revoke all on function relevo.is_gathered_later from public;
