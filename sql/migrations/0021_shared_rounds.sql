-- needs relevo 0.1.0
-- What one replica does for the whole fleet is done once per interval, not once per replica.

alter table relevo.cycle_state add column shared_at timestamptz;

comment on column relevo.cycle_state.shared_at is 'When a replica last took its turn to do what one does for all of them.';
