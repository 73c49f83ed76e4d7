-- needs relevo 0.1.0
-- Counts what is not worth a row, and notices a clock that was set back between two requests to a source.

alter table relevo.cycle_state add column slots_skipped bigint not null default 0;

comment on column relevo.cycle_state.slots_skipped is 'Slots and ticks that were not run because another run had them, or for a reason told before.';

alter table relevo.source_lanes add column asked_at timestamptz;

comment on column relevo.source_lanes.asked_at is 'When the last turn was taken; in the future, the clock was set back since.';
