-- needs relevo 0.1.0
-- What status needs to tell the truth: how often cycles come round, when they last went well, when a source last had news.

alter table relevo.cycle_state
  add column round_gap_s double precision check (round_gap_s >= 0),
  add column last_ok_at timestamptz,
  add column failures integer not null default 0 check (failures >= 0);

comment on column relevo.cycle_state.round_gap_s is 'How many seconds lie between two rounds, on a running average.';
comment on column relevo.cycle_state.failures is 'How many rounds in a row have failed.';

alter table relevo.source_state
  add column last_news_at timestamptz,
  add column news_gap_s double precision check (news_gap_s >= 0);

comment on column relevo.source_state.news_gap_s is 'How many seconds lie between two passes with news, on a running average.';
