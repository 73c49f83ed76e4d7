-- Tells phones, each by one push, what was gathered for them and is still to be told by this digest; brings what belongs to another digest by now there, and writes why no digest
-- tells the rest. A push is due since the time of the slot, however late it closes: by that a worker knows that it is late.
create or replace function relevo.tell_items(s relevo.digest_slots, seqs bigint[], events bigint[], inboxes bigint[], told_by bigint, at timestamptz, out phones int, out items bigint)
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
  since timestamptz := least(s.closes_at, at);
  dues timestamptz[];
  n record;
begin
  with judged as materialized (
    select (j.place).*, j.code, j.nth, j.code is null and ((j.place).project, (j.place).delivery, (j.place).zone) = (s.project, s.delivery, s.zone) as is_told
      from relevo.judge_items(seqs, events, inboxes, at) j
  ), told as materialized (
    select j.seq, j.installation_id, count(*)::int as total, (array_agg((told_by - j.event_id)::int order by j.nth))[:1000] as offsets from judged j where j.is_told
     group by j.seq, j.installation_id
  ), kept as (
    insert into relevo.digest_contents (event_id, seq, total, offsets, inbox_id)
    select told_by, t.seq, t.total, t.offsets, i.inbox_id from told t join relevo.device_installations i on i.seq = t.seq
  )
  select (select array_agg(t.installation_id) from told t) as ids, (select count(*)::int from told t) as phones, (select coalesce(sum(t.total), 0)::bigint from told t) as items,
         array_agg(j.seq) filter (where j.code is not null) as seqs, array_agg(j.event_id) filter (where j.code is not null) as events,
         array_agg(j.code) filter (where j.code is not null) as codes,
         array_agg(row(j.seq, j.event_id, j.installation_id, j.project, j.delivery, j.zone)::relevo.digest_place) filter (where j.code is null and not j.is_told) as elsewhere
    into n from judged j;
  phones := n.phones;
  items := n.items;
  if n.elsewhere is not null then
    insert into relevo.digest_items (slot_id, seq, event_id, inbox_id)
    select o.id, p.seq, p.event_id, u.inbox_id
      from unnest(n.elsewhere) p
      join relevo.open_slots(n.elsewhere, at) o on o.project = p.project and o.delivery = p.delivery and o.zone = p.zone
      join unnest(seqs, events, inboxes) as u(seq, event_id, inbox_id) on u.seq = p.seq and u.event_id = p.event_id;
  end if;
  if n.codes is not null then
    perform relevo.end_items(n.seqs, n.events, n.codes, at);
  end if;
  if phones = 0 then
    return;
  end if;
  e := relevo.begin_digest(s, told_by, at);
  dues := case when exists (select from relevo.quiet_profiles) then relevo.quiet_dues(e, n.ids, at) end;
  perform relevo.write_deliveries(e, since, array_agg(i.installation_id order by u.place), array_agg(i.provider order by u.place),
                                  array_agg(relevo.sending_project(i.provider, i.project, i.part) order by u.place),
                                  case when dues is not null then array_agg(case when u.due > at then u.due else since end order by u.place) end,
                                  case when count(i.inbox_id) > 0 then array_agg(i.inbox_id order by u.place) end)
     from unnest(n.ids, dues) with ordinality as u(id, due, place)
     join relevo.device_installations i on i.installation_id = u.id;
  update relevo.notification_events d
     set targets_selected = d.targets_selected + phones, deliveries_created = d.deliveries_created + phones, fanout_finished_at = at, updated_at = at,
         fanout_cursor = (select max(u.seq) from unnest(seqs) as u(seq))
   where d.id = e.id;
  update relevo.digests d set phones = d.phones + tell_items.phones, items = d.items + tell_items.items where d.event_id = e.id;
  perform relevo.wake('dispatch');
end
$$;

revoke all on function relevo.tell_items from public;
