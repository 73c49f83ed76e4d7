-- needs relevo 0.3.0
-- Lets types that tell batches follow theirs, notes what went without a sound, and lets phones of a project be brought to other digests in parts.

alter table relevo.event_types add column own text[];
comment on column relevo.event_types.own is 'Of a type that tells batches of another: what was set for itself; in the rest it follows that one.';

create table relevo.silent_pushes (
  event_id    bigint not null,
  delivery_id bigint not null,
  at          timestamptz not null,
  primary key (event_id, delivery_id)
);
comment on table relevo.silent_pushes is 'Pushes of the last weeks that went without a sound because of quiet hours.';
create index silent_pushes_by_time on relevo.silent_pushes (at);

create table relevo.digest_moves (
  project text primary key check (length(project) between 1 and 200),
  place   uuid -- up to this phone it is done
);
comment on table relevo.digest_moves is 'Projects whose time zone changed, while the digests of their phones are brought to other slots, some at a time.';
