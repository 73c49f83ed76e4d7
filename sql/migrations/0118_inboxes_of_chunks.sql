-- needs relevo 0.3.0
-- Lets what waits in the queue say for which inboxes it was made, so that a claim sees whether a phone changed hands.

alter table relevo.due_chunks add column inboxes bigint[], add constraint due_chunks_inboxes check (cardinality(inboxes) = cardinality(ids)),
  alter column inboxes set storage main;
comment on column relevo.due_chunks.inboxes is
  'The inboxes its deliveries were made for, in the same order: a phone that is another owner''s by now is not sent to. Null: nothing to compare.';
