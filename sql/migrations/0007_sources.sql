-- needs relevo 0.1.0
-- Sources that lose nothing: when a tender was told of, whether it is open, what stays wrong with a source, who was told before.

alter table relevo.licitaciones
  add column as_of timestamptz check (as_of between '1900-01-01Z' and '2200-01-01Z'),
  add column announces boolean not null default true,
  add column withdrawn boolean;

comment on column relevo.licitaciones.as_of is 'When its newest telling is of: an older one only fills blanks.';
comment on column relevo.licitaciones.announces is 'Whether it is open for offers, by its newest telling.';
comment on column relevo.licitaciones.withdrawn is 'Whether it is revoked or suspended, by its newest telling.';

alter table relevo.source_state
  add column problems text[] not null default '{}' check (cardinality(problems) <= 20);

comment on column relevo.source_state.problems is 'What stays wrong with the source until somebody mends it.';

create table relevo.event_followers (
  event_id        bigint not null references relevo.notification_events on delete cascade,
  former_event_id bigint not null,
  primary key (event_id, former_event_id)
);

comment on table relevo.event_followers is 'Events that announce again what was cancelled before: whoever got the former one is left out.';
