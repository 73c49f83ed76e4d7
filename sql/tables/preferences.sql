-- The preferences of phones, and the index by which fan-out finds them.

create table relevo.notification_preferences (
  installation_id uuid not null references relevo.device_installations(installation_id) on delete cascade,
  name            text not null default 'default' check (length(name) between 1 and 100),
  enabled         boolean not null default true,
  rubro_prefix    text check (rubro_prefix ~ '^[0-9A-Za-z-]{1,20}$'), -- the beginning of a code
  tipo            text check (length(tipo) between 1 and 100),
  region          text check (length(region) between 1 and 200),
  monto_min       numeric(20,2) check (monto_min >= 0),
  monto_max       numeric(20,2) check (monto_max >= 0),
  moneda          text check (moneda ~ '^[A-Z]{3}$'),
  keywords        text[] check (cardinality(keywords) >= 1 and cardinality(keywords) <= 20 and octet_length(array_to_string(keywords, '')) <= 8000),
  updated_at      timestamptz not null default now(),
  region_key      text generated always as (relevo.region_key(region)) stored, -- region in one form
  patterns        text[] generated always as (relevo.keyword_patterns(keywords)) stored, -- keywords as they are searched for
  topics          text[] check (cardinality(topics) between 1 and 100), -- null: events without topics
  delivery        text check (delivery ~ '^(hourly|(daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01][0-9]|2[0-3]):[0-5][0-9])$'), -- null: now
  primary key (installation_id, name),
  constraint notification_preferences_check check (monto_min <= monto_max),
  constraint notification_preferences_check1 check (monto_min is null and monto_max is null or moneda is not null)
);
comment on table relevo.notification_preferences is
  'What an installation asked for; null is a wildcard, several are joined by or, no row means no pushes.';
comment on column relevo.notification_preferences.delivery is
  'When what matches is told: null at once, else together, in a digest: hourly, daily 08:00 or weekly mon 08:00, where the phone is.';

create trigger index_deleted after delete on relevo.notification_preferences referencing old table as gone
  for each statement execute function relevo.index_preferences();
create trigger index_inserted after insert on relevo.notification_preferences referencing new table as come
  for each statement execute function relevo.index_preferences();
create trigger index_updated after update on relevo.notification_preferences referencing old table as gone new table as come
  for each statement execute function relevo.index_preferences();

create table relevo.preference_index (
  bucket          text not null, -- the dimension and its value
  seq             bigint not null, -- the phone's
  installation_id uuid not null,
  name            text not null,
  sure            boolean not null, -- whether the bucket alone decides
  delivery        text, -- the preference's; null: now
  primary key (bucket, seq, name)
);
comment on table relevo.preference_index is
  'Each enabled preference, under its most selective dimension: topic, else keyword, rubro, region, tipo, else everything; sure if that alone decides.';
create index preference_index_owner on relevo.preference_index (installation_id, name);
