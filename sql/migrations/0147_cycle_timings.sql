-- needs relevo 0.3.0
-- Lets each cycle say in the database when it runs: status judges by that which cycle is late, and not by its own settings.

alter table relevo.cycle_state
  add column every_ms bigint check (every_ms > 0),
  add column cron text check (length(cron) between 1 and 200),
  add column timezone text check (length(timezone) between 1 and 64),
  add column off_reason text check (length(off_reason) between 1 and 300);
comment on column relevo.cycle_state.every_ms is 'How often it runs at the latest, as the worker or tick says that started last; null if it runs by cron, or before 0.4.';
comment on column relevo.cycle_state.cron is 'The cron expression by which it runs, likewise.';
comment on column relevo.cycle_state.timezone is 'The time zone of the cron expression.';
comment on column relevo.cycle_state.off_reason is 'Why it cannot run with the settings of that worker; null if it can.';
