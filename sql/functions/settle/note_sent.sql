-- Notes the first push of events, and of their tenders. Tenders are locked before their events, by key, as ingest does: no deadlock. Fan-out
-- may hold an event; then the next settle notes it.
create or replace function relevo.note_sent(events bigint[], at timestamptz) returns void language plpgsql volatile
as $$
declare
  unnoted bigint[];
  tenders bigint[];
begin
  select array_agg(e.id) filter (where e.first_sent_at is null), array_agg(e.licitacion_id) filter (where l.id is not null)
    into unnoted, tenders
    from (select distinct v.event_id from unnest(events) as v(event_id)) v
    cross join lateral (select e.id, e.licitacion_id, e.first_sent_at from relevo.notification_events e where e.id = v.event_id offset 0) e
    left join lateral (select l.id from relevo.licitaciones l where l.id = e.licitacion_id and not l.notificada offset 0) l on true;
  if tenders is not null then
    update relevo.licitaciones l set notificada = true
      from (select t.id from relevo.licitaciones t where t.id = any (tenders) and not t.notificada
             order by t.namespace, t.external_id for no key update) t
     where l.id = t.id;
  end if;
  if unnoted is not null then
    update relevo.notification_events e set first_sent_at = at
      from (select n.id from relevo.notification_events n where n.id = any (unnoted) and n.first_sent_at is null
              for no key update skip locked) n
     where e.id = n.id;
  end if;
end
$$;

revoke all on function relevo.note_sent from public;
