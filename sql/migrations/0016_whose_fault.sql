-- needs relevo 0.1.0
-- Whose fault it is: what tells a project's credential fault from a phone's own, and an outage from a bad event.

create table relevo.credential_answers (
  project       text not null references relevo.projects on delete cascade,
  answered_by   text not null check (answered_by in ('request', 'receipt')),
  since         timestamptz not null,
  installations uuid[] not null,
  faulty        boolean[] not null,
  primary key (project, answered_by),
  check (cardinality(installations) = cardinality(faulty) and cardinality(faulty) between 1 and 100)
) with (fillfactor = 50);

comment on table relevo.credential_answers is 'The installations heard of lately, newest last, and whether each met a credential fault; kept from a first fault on.';
comment on column relevo.credential_answers.faulty is 'Null for a phone that met the fault before the breaker closed: its own trouble, which tells nothing of the project.';

create table relevo.refused_events (
  project          text not null references relevo.projects on delete cascade,
  event_id         bigint not null,
  first_refused_at timestamptz not null,
  last_refused_at  timestamptz not null,
  taken_since      boolean not null default false,
  own_taken        boolean not null default false,
  primary key (project, event_id)
) with (fillfactor = 50);

comment on table relevo.refused_events is 'The events of which the push service refused a message alone, with a 400.';
comment on column relevo.refused_events.taken_since is 'Whether any message of the project was taken since it was last refused.';
comment on column relevo.refused_events.own_taken is 'Whether one of its own messages was taken.';

create index device_installations_project on relevo.device_installations (project);
