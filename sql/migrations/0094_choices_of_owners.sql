-- needs relevo 0.3.0
-- Gives phones a copy of what their owners chose.

alter table relevo.device_installations
  add column refused text[] not null default '{}', add column accepted text[] not null default '{}', add column blocked boolean not null default false;
comment on column relevo.device_installations.refused is 'Categories that its owner refused; owner_rules has the choices, and this is their copy.';
comment on column relevo.device_installations.accepted is 'Categories that its owner accepted; those that are off need it.';
comment on column relevo.device_installations.blocked is 'Whether its owner is blocked: nothing is sent to it.';
