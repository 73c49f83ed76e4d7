-- needs relevo 0.1.0
-- One order of locks for all who touch a tender and its event: the tender first, as ingest has to.

-- Notes that pushes of events were taken. Tenders are locked before events, tenders by their key and events by their number.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language sql volatile
as $$
  update relevo.licitaciones l set notificada = true
   where l.id in (select t.id from relevo.licitaciones t
                   where not t.notificada and t.id in (select e.licitacion_id from relevo.notification_events e where e.id = any (event_ids))
                   order by t.namespace, t.external_id
                     for no key update);
  update relevo.notification_events e set first_sent_at = coalesce(at, now())
   where e.first_sent_at is null
     and e.id in (select n.id from relevo.notification_events n where n.id = any (event_ids) order by n.id for no key update);
$$;
