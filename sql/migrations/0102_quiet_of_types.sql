-- needs relevo 0.3.0
-- Lets event types say what quiet hours mean for them.

alter table relevo.event_types
  add column quiet text check (quiet in ('wait', 'silent', 'ignore')), add column quiet_max_wait_s integer check (quiet_max_wait_s between 60 and 604800),
  add column quiet_deadline text check (quiet_deadline in ('silent', 'expired')), add column quiet_spread_s integer check (quiet_spread_s between 0 and 7200);
comment on column relevo.event_types.quiet is 'What quiet hours mean for its events; null: urgent ones ignore them, others wait for their end.';
comment on column relevo.event_types.quiet_max_wait_s is 'For how long after it fell due an event waits at most; then it goes silently. Null: until they end.';
comment on column relevo.event_types.quiet_deadline is 'What becomes of one whose deadline lies in the quiet hours; null: it goes silently at once.';
comment on column relevo.event_types.quiet_spread_s is 'Over how long what waited is spread after their end; null means 300.';
