-- Closes due batches, up to a number, or a given one. Returns how many it closed and how many events they had. Each batch gets one event with the
-- remaining content, in the same transaction. A batch without events is deleted. The event of several has a type of its own, which follows theirs.
create or replace function relevo.close_batches(most int, alone bigint, given_at timestamptz, out closed int, out told int)
  language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  due bigint[] := array(select b.id from relevo.batches b where b.closed_at is null and b.closes_at <= at and (alone is null or b.id = alone)
                         order by b.closes_at, b.id limit most for update skip locked);
begin
  closed := cardinality(due);
  update relevo.batches b
     set closed_at = at, events = l.events, event_id = nextval('relevo.notification_events_id_seq')
    from (select d.id, relevo.left_of_batch(d, at) as events from relevo.batches d where d.id = any (due)) l
   where b.id = l.id and l.events is not null;
  delete from relevo.batches b where b.id = any (due) and b.closed_at is null;
  perform relevo.follow_types(array(select distinct b.event_type from relevo.batches b
                                     where b.id = any (due) and cardinality(b.events) > 1
                                       and not exists (select from relevo.event_types t where t.event_type = b.event_type || '.batch')));
  insert into relevo.notification_events (id, event_type, event_key, title, body, data, push, audience, category, lane, at_most_once, scheduled_at, deadline_at,
                                          content_hash, project, turn_at, arguments, wording, texts, opens, unread_badge, batch_id)
  select n.id, n.event_type, n.event_key, n.title, n.body, n.data, n.push, n.audience, n.category, n.lane, n.at_most_once, n.scheduled_at, n.deadline_at,
         '', n.project, n.turn_at, n.arguments, n.wording, n.texts, n.opens, n.unread_badge, n.batch_id
    from relevo.batches b cross join lateral relevo.batch_event(b, at, true) n
   where b.id = any (due) order by n.id;
  insert into relevo.event_owners (event_id, owner)
  select b.event_id, substr(b.subject, 3) from relevo.batches b where b.id = any (due) and b.subject like 'o:%';
  insert into relevo.event_audience (event_id, installation_id, inbox_id)
  select b.event_id, p.id, (select i.inbox_id from relevo.device_installations i where i.installation_id = p.id)
    from relevo.batches b cross join lateral (select substr(b.subject, 3)::uuid as id) p
   where b.id = any (due) and b.subject like 'i:%';
  told := (select coalesce(sum(cardinality(b.events)), 0) from relevo.batches b where b.id = any (due));
end
$$;

revoke all on function relevo.close_batches from public;
