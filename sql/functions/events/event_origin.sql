-- Returns the origin of an event: the source that first saw its tender, else the app, with the event's project if it names one, so that one
-- project's runaway app stops no other project. A hash distinguishes names that are too long for an origin.
create or replace function relevo.event_origin(e relevo.notification_events) returns text language sql stable
  return coalesce((select r.source from relevo.licitaciones l
                     join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
                    where l.id = e.licitacion_id),
                  'app' || coalesce(' of ' || case when length(e.project) <= 90 then e.project else left(e.project, 50) || md5(e.project) end, ''));

revoke all on function relevo.event_origin from public;
