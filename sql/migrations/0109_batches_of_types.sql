-- needs relevo 0.3.0
-- Lets event types say that their personal events are gathered.

alter table relevo.event_types
  add column batch_window_s integer check (batch_window_s between 1 and 86400), add column batch_longest_s integer check (batch_longest_s between 1 and 86400),
  add column batch_first boolean, add constraint batches_have_a_name check (batch_window_s is null or length(event_type) <= 94);
comment on column relevo.event_types.batch_window_s is 'For how long its personal events are gathered, to be told by one push; null: each is told by itself.';
comment on column relevo.event_types.batch_longest_s is 'Each further one lets them be gathered for another window, for at most so long in all; null: none does.';
comment on column relevo.event_types.batch_first is 'Whether the first goes out at once, and only those that follow are gathered; null: it does not.';
create index event_types_batched on relevo.event_types (event_type) where batch_window_s is not null;
