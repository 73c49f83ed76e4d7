-- needs relevo 0.3.0
-- Gives chunks of the queue one CHECK, a function, in place of seven: PostgreSQL parses the text of each again for every statement that writes a chunk.

create function relevo.is_possible_chunk(ids bigint[], installations uuid[], inboxes bigint[], events bigint[], event_id bigint)
  returns boolean
  language plpgsql immutable
as $$
declare
  deliveries int := cardinality(ids);
begin
  return deliveries between 1 and 100
     and cardinality(installations) = deliveries
     and (inboxes is null or cardinality(inboxes) = deliveries)
     and (events is null or event_id = 0 and cardinality(events) = deliveries);
end
$$;

alter table relevo.due_chunks
  drop constraint due_chunks_lane_check,
  drop constraint due_chunks_attempt_count_check,
  drop constraint due_chunks_lapse_count_check,
  drop constraint due_chunks_ids_check,
  drop constraint due_chunks_check,
  drop constraint due_chunks_inboxes,
  drop constraint due_chunks_events,
  add constraint chunk_is_possible check (relevo.is_possible_chunk(ids, installations, inboxes, events, event_id)) not valid;
