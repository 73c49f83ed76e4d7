-- Returns the chunks of the queue that hold deliveries of an event: its own, and those of several events.
create or replace function relevo.chunks_of(e relevo.notification_events) returns setof relevo.due_chunks
  language sql stable
as $$
  select q.* from relevo.due_chunks q where q.event_id = e.id
  union all
  select q.* from unnest(e.queued_in) as k(id) cross join lateral (select * from relevo.due_chunks q where q.id = k.id and e.id = any (q.events) offset 0) q
$$;

revoke all on function relevo.chunks_of from public;
