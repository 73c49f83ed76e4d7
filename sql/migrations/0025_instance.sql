-- needs relevo 0.1.0
-- Lets a database know to which installation of Relevo it belongs, so that a copy of it pushes to nobody.

create table relevo.instance (
  one boolean primary key default true check (one),
  system_identifier text,
  database_oid bigint not null,
  name text check (length(name) between 1 and 100),
  recorded_at timestamptz not null default now(),
  adopted_by text check (length(adopted_by) between 1 and 200),
  former jsonb check (jsonb_typeof(former) = 'object')
);

comment on table relevo.instance is 'Where this database belongs; where it is found elsewhere, nothing is sent until `relevo adopt`.';
comment on column relevo.instance.system_identifier is 'That of the server, which a failover keeps; null if nobody who recorded it may ask.';
comment on column relevo.instance.name is 'RELEVO_INSTANCE of those who work on it.';
comment on column relevo.instance.former is 'Where it belonged before it was adopted, and what was queued at that moment.';

-- Tells the server's own identifier, or nothing where that may not be asked.
create function relevo.system_identifier() returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
    return null;
  end if;
  return (select c.system_identifier::text from pg_control_system() c);
end
$$;

-- Tells whether this database belongs elsewhere; what is not known differs from nothing.
create function relevo.belongs_elsewhere(instance_name text) returns boolean
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (select from relevo.instance i
                  where i.name is distinct from instance_name
                     or i.database_oid <> (select d.oid::bigint from pg_database d where d.datname = current_database())
                     or i.system_identifier <> relevo.system_identifier());
end
$$;

revoke all on function relevo.system_identifier(), relevo.belongs_elsewhere(text) from public;
