-- needs relevo 0.3.0
-- Lets workers report how far the clock of their machine is from the database's.

alter table relevo.workers add column clock_ahead_s float8;
comment on column relevo.workers.clock_ahead_s is 'By how many seconds the clock of its machine is ahead of the database''s; null if it has not said.';
