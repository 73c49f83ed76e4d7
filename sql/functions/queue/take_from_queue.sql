-- Takes deliveries of some events out of the queue, and returns those that stood there, which the caller has to put back. It skips
-- deliveries that somebody else is about to claim or to put back.
create or replace function relevo.take_from_queue(of_events bigint[], of_ids bigint[]) returns table (event_day date, id bigint, due_at timestamptz)
  language plpgsql volatile
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  chunk relevo.due_chunks;
begin
  for chunk in
    select c.* from relevo.due_chunks c
     where (c.event_id = any (of_events)
            or c.events is not null and c.id = any (array(select unnest(e.queued_in) from relevo.notification_events e where e.id = any (of_events))))
       and c.ids && of_ids order by c.id for update skip locked
  loop
    delete from relevo.due_chunks c where c.id = chunk.id;
    perform relevo.put_back(relevo.part_of_chunk(chunk, array(
      select u.place from unnest(chunk.ids) with ordinality as u(id, place) where u.id <> all (of_ids) order by u.place)::int[]));
    return query select chunk.event_day, u.id, chunk.due_at from unnest(chunk.ids) as u(id) where u.id = any (of_ids);
  end loop;
end
$$;

revoke all on function relevo.take_from_queue from public;
