-- needs relevo 0.3.0
-- Notes whether equal owner names of several projects are one person: as until now where nobody can notice, or has a token of one project.

create table relevo.owner_sharing (
  one        boolean primary key default true check (one),
  shared     boolean not null,
  changed_at timestamptz not null default now(),
  said_at    timestamptz
);
comment on column relevo.owner_sharing.said_at is 'When an operator last said so; null: it was assumed.';
comment on table relevo.owner_sharing is
  'Whether equal owner names of several projects are one person: then an event for owners that names no project is for their phones in all of them, else for those in the project `default`.';
insert into relevo.owner_sharing (shared)
select not exists (select from relevo.api_tokens t where t.project is not null and t.revoked_at is null and (t.expires_at > now()) is not false)
    or (select count(*) from (select i.project from relevo.device_installations i where not i.for_news
                              union select t.project from relevo.api_tokens t
                               where t.project is not null and t.revoked_at is null and (t.expires_at > now()) is not false) p) = 1;
