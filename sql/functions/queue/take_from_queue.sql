-- Takes deliveries of some events out of the queue, and returns those that stood there, which the caller has to put back. What somebody else
-- is about to claim or to put back is passed by.
create or replace function relevo.take_from_queue(of_events bigint[], of_ids bigint[]) returns table (event_day date, id bigint, due_at timestamptz)
  language plpgsql volatile
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  chunk relevo.due_chunks;
begin
  for chunk in
    select c.* from relevo.due_chunks c where c.event_id = any (of_events) and c.ids && of_ids order by c.id for update skip locked
  loop
    delete from relevo.due_chunks c where c.id = chunk.id;
    perform relevo.put_back(chunk, array_agg(u.id), array_agg(u.installation_id), case when chunk.inboxes is not null then array_agg(u.inbox_id) end)
       from unnest(chunk.ids, chunk.installations, chunk.inboxes) as u(id, installation_id, inbox_id) where u.id <> all (of_ids) having count(*) > 0;
    return query select chunk.event_day, u.id, chunk.due_at from unnest(chunk.ids) as u(id) where u.id = any (of_ids);
  end loop;
end
$$;

revoke all on function relevo.take_from_queue from public;
