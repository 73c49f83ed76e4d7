-- Puts back into the queue what is not taken of a chunk.
create or replace function relevo.put_back(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[], left_inboxes bigint[]) returns void
  language plpgsql volatile
as $$
begin
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations, inboxes)
  values (chunk.project, chunk.lane, chunk.due_at, chunk.event_day, chunk.event_id, chunk.event_type, chunk.created_at, chunk.attempt_count,
          chunk.lapse_count, chunk.had_error, left_ids, left_installations, left_inboxes);
end
$$;

revoke all on function relevo.put_back from public;
