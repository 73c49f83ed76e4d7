-- Writes the digests of the next phones of a slot that closes, which this transaction has locked, and moves its cursor; after the last it waits for its next time.
create or replace function relevo.close_digest_slice(s relevo.digest_slots, most int, given_at timestamptz)
  returns table (is_last boolean, phones int, items bigint)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  e relevo.notification_events;
  told_by bigint;
  p record;
  m record;
  x record;
begin
  select array_agg(n.seq order by n.seq) as seqs, array_agg(n.installation_id order by n.seq) as ids, array_agg(n.lower order by n.seq) as lowers,
         array_agg(n.changed order by n.seq) as changes, max(n.seq) as last, count(*) < most as is_last
    into p from relevo.digest_phones(s, most) n;
  is_last := p.is_last;
  if s.event_id is not null and relevo.hold_open(array(select n.event_day from relevo.notification_events n where n.id = s.event_id)) = '{}' then
    s.event_id := null; -- it was deleted, or its month sealed while nobody went on: the rest is told by another
  end if;
  with gone as ( -- first: what comes meanwhile is told next time
    delete from relevo.digest_extras d where d.project = s.project and d.delivery = s.delivery and d.zone = s.zone and d.seq = any (p.seqs) returning d.seq, d.event_id
  )
  select array_agg(g.seq) as seqs, array_agg(g.event_id) as events into x from gone g;
  told_by := coalesce(s.event_id, nextval('relevo.notification_events_id_seq'));
  with told as materialized (
    select n.* from relevo.digest_matches(s, p.seqs, p.ids, p.lowers, p.changes, told_by, at, x.seqs, x.events) n
  ), kept as (
    insert into relevo.digest_contents (event_id, seq, total, offsets) select told_by, t.seq, t.total, t.offsets from told t
  )
  select array_agg(t.installation_id) as ids, array_agg(t.provider) as providers, array_agg(t.project) as projects, array_agg(t.inbox_id) as inboxes, count(*)::int as phones,
         coalesce(sum(t.total), 0)::bigint as items
    into m from told t;
  phones := m.phones;
  items := m.items;
  if phones > 0 then
    e := relevo.begin_digest(s, told_by, at);
    perform relevo.write_deliveries(e, at, m.ids, m.providers, m.projects,
      case when exists (select from relevo.quiet_profiles) then relevo.quiet_dues(e, m.ids, at) end, m.inboxes);
    update relevo.notification_events n
       set targets_selected = n.targets_selected + m.phones, deliveries_created = n.deliveries_created + m.phones, fanout_finished_at = at,
           fanout_cursor = p.last, updated_at = at
     where n.id = e.id;
    update relevo.digests d set phones = d.phones + m.phones, items = d.items + m.items where d.event_id = e.id;
    perform relevo.wake('dispatch');
  end if;
  update relevo.digest_slots d
     set event_id = case when is_last or phones = 0 and s.event_id is null then null else told_by end, phone_cursor = case when is_last then 0 else p.last end,
         after_number = case when is_last then s.upto_number else s.after_number end,
         closes_at = case when is_last then relevo.next_digest(s.delivery, s.zone, greatest(at, s.closes_at)) else s.closes_at end,
         upto_number = case when not is_last then s.upto_number end, upto_seq = case when not is_last then s.upto_seq end
   where d.project = s.project and d.delivery = s.delivery and d.zone = s.zone;
  return next;
end
$$;

revoke all on function relevo.close_digest_slice from public;
