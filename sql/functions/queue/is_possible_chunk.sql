-- Returns whether a chunk of the queue can be so: 1 to 100 deliveries, each with its phone and, where they are kept, its inbox and its event.
create or replace function relevo.is_possible_chunk(ids bigint[], installations uuid[], inboxes bigint[], events bigint[], event_id bigint)
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

revoke all on function relevo.is_possible_chunk from public;
