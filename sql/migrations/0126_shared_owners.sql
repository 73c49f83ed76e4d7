-- needs relevo 0.3.0
-- Notes whether equal owner names of several projects are one person: as until now where nobody can notice, or has a token of one project.

create table relevo.owner_sharing (
  one        boolean primary key default true check (one),
  shared     boolean not null,
  changed_at timestamptz not null default now()
);
comment on table relevo.owner_sharing is
  'Whether equal owner names of several projects are one person: then an event for owners that names no project is for their phones in all of them, else for those in the project `default`.';
insert into relevo.owner_sharing (shared)
select not exists (select from relevo.api_tokens t where t.project is not null and t.revoked_at is null and (t.expires_at > now()) is not false)
    or not exists (select from relevo.device_installations i
                    where not i.for_news and i.project <> (select f.project from relevo.device_installations f where not f.for_news limit 1));
