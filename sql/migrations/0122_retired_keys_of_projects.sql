-- needs relevo 0.3.0
-- Drops the constraint by which the key of a retired event was unique in all projects together.

alter table relevo.event_keys drop constraint event_keys_pkey;
