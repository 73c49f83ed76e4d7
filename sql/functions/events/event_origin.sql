-- Returns where an event comes from: the source that first saw its tender, else the app.
create or replace function relevo.event_origin(e relevo.notification_events) returns text language sql stable
  return coalesce((select r.source from relevo.licitaciones l
                     join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
                    where l.id = e.licitacion_id), 'app');

revoke all on function relevo.event_origin from public;
