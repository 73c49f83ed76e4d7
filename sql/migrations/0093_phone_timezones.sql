-- needs relevo 0.3.0
-- Lets phones say in which time zone they are.

alter table relevo.device_installations add column timezone text check (length(timezone) between 1 and 64);
comment on column relevo.device_installations.timezone is 'The time zone it is in, by its IANA name such as America/Santiago, if it said so.';
