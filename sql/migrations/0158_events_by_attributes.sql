-- needs relevo 0.3.0
-- Keeps of an event by attributes those that it is for.

alter table relevo.notification_events add column match_where jsonb;
comment on column relevo.notification_events.match_where is 'Of an audience by attributes: the values of each attribute of which a phone must have one.';
