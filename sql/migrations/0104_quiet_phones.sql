-- needs relevo 0.3.0
-- Gives phones quiet hours, and a copy of those of their owners.

alter table relevo.device_installations add column quiet integer, add column owner_quiet integer;
comment on column relevo.device_installations.quiet is 'Its own quiet hours, one of quiet_profiles; null: those of its owner, or else of its project.';
comment on column relevo.device_installations.owner_quiet is 'The quiet hours of its owner; owner_rules has them, and this is their copy.';
