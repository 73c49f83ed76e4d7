-- Slices of a named audience that wait for their turn.

-- The rest of a named audience after its first slice: read once, cut into slices, each deleted when it is made.
create table relevo.fanout_slices (
  event_id bigint not null references relevo.notification_events(id) on delete cascade,
  last_seq bigint not null, -- the last phone of the slice
  seqs     bigint[] not null check (cardinality(seqs) > 0), -- its phones
  primary key (event_id, last_seq)
);
comment on table relevo.fanout_slices is 'The phones of a long named audience that are still to get their deliveries, slice by slice.';
