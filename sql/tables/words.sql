-- The texts of event types, in several languages.

create table relevo.wordings (
  event_type     text not null check (length(event_type) between 1 and 100),
  version        int not null check (version > 0),
  default_locale text not null check (length(default_locale) between 1 and 35),
  texts          jsonb not null check (jsonb_typeof(texts) = 'object' and texts ? default_locale),
  arguments      jsonb not null check (jsonb_typeof(arguments) = 'object'),
  zoned          boolean not null,
  bytes          int not null check (bytes >= 0),
  created_at     timestamptz not null default now(),
  primary key (event_type, version)
);
comment on table relevo.wordings is 'The texts of event types; the newest version of a type is the current one. A row is never changed: a correction is another version.';
comment on column relevo.wordings.texts is 'Title, body and subtitle by locale, as ICU MessageFormat writes patterns.';
comment on column relevo.wordings.arguments is 'The arguments that the texts name: of each its kind (number, text or time) and a sample.';
comment on column relevo.wordings.zoned is 'Whether a text names a time, so that it differs by the phone''s time zone.';
comment on column relevo.wordings.bytes is 'How much the longest text weighs with the sample.';

create trigger refuse_edit before update or delete on relevo.wordings
  for each row execute function relevo.refuse_edit();

create table relevo.project_locales (
  project text primary key check (length(project) between 1 and 200),
  locale  text not null check (length(locale) between 1 and 35)
);
comment on table relevo.project_locales is 'The language of a project: for phones whose own none of a type''s texts is in, or that did not say one.';
