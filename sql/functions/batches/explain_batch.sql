-- Returns the batch that has a gathered event for a phone of the owner of that inbox: until when it gathers, or the event that it sent, with the
-- number of its events and the state of that event's push to the phone. Null if no batch has the event, because it ended or was handled before.
create or replace function relevo.explain_batch(e relevo.notification_events, i relevo.device_installations, made_for bigint) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('until', case when b.closed_at is null then b.closes_at end, 'at', b.closed_at, 'event', b.event_id, 'count', cardinality(b.events),
                            'status', (select d.status from relevo.notification_events n
                                         join relevo.notification_deliveries d on d.event_day = n.event_day and d.notification_event_id = n.id and d.installation_id = (i).installation_id
                                        where n.id = b.event_id))
    from relevo.batches b
   where b.subject in ('o:' || coalesce((select n.owner from relevo.inboxes n where n.id = made_for), (i).owner), 'i:' || (i).installation_id) and b.event_type = (e).event_type and b.key = coalesce((e).batch ->> 'key', '')
     and (e).id = any (b.events)
   order by b.id desc limit 1
$$;

revoke all on function relevo.explain_batch from public;
