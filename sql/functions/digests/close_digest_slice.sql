-- Closes a slot, which this transaction has locked, for its next phones. It takes the gathered items, makes one push of the remaining events for
-- each phone, records why the others are left out, moves items that belong to another digest by now, and moves the cursor. After the last phone the
-- slot waits for its next time. Items that another transaction is moving are left to that transaction.
create or replace function relevo.close_digest_slice(s relevo.digest_slots, most int, given_at timestamptz)
  returns table (is_last boolean, phones int, items bigint)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  next_seqs bigint[] := array(select distinct x.seq from relevo.digest_items x where x.slot_id = s.id and x.seq > s.phone_cursor order by x.seq limit most);
  last_seq bigint := next_seqs[cardinality(next_seqs)];
  told_by bigint;
  n record;
begin
  is_last := cardinality(next_seqs) < most;
  if s.event_id is not null and relevo.hold_open(array(select e.event_day from relevo.notification_events e where e.id = s.event_id)) = '{}' then
    s.event_id := null; -- it was deleted, or its month sealed while nobody went on: the rest is told by another
  end if;
  with taken as (
    select x.seq, x.event_id from relevo.digest_items x where x.slot_id = s.id and x.seq = any (next_seqs) for update skip locked
  ), gone as (
    delete from relevo.digest_items x using taken t where x.seq = t.seq and x.event_id = t.event_id returning x.seq, x.event_id, x.inbox_id
  )
  select array_agg(g.seq) as seqs, array_agg(g.event_id) as events, array_agg(g.inbox_id) as inboxes into n from gone g;
  told_by := coalesce(s.event_id, nextval('relevo.notification_events_id_seq'));
  select t.phones, t.items into phones, items from relevo.tell_items(s, n.seqs, n.events, n.inboxes, told_by, at) t;
  update relevo.digest_slots d
     set event_id = case when is_last or phones = 0 and s.event_id is null then null else told_by end, phone_cursor = case when is_last then 0 else last_seq end,
         closes_at = case when is_last then relevo.next_digest(s.delivery, s.zone, greatest(at, s.closes_at)) else s.closes_at end
   where d.id = s.id;
  return next;
end
$$;

revoke all on function relevo.close_digest_slice from public;
