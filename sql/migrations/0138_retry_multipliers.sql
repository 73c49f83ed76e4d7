-- needs relevo 0.3.0
-- Lets an event type say by how much each pause before a retry is longer than the one before.

alter table relevo.event_types
  add column retry_multiplier double precision check (retry_multiplier between 1 and 10); -- by which each pause is longer than the one before; null means 2
