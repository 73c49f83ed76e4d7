-- needs relevo 0.3.0
-- Keeps with each event the span that enqueued it.

alter table relevo.notification_events add column traceparent text;
comment on column relevo.notification_events.traceparent is 'The span that enqueued it, as W3C Trace Context writes it; null: it is not traced.';
