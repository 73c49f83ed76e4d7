-- Returns by which digest a phone is told an event, enqueued or a draft, that it was not sent by itself: the one it was in (digested), or the next of its
-- slot (in_digest), with the slot and its time; null if by none.
create or replace function relevo.explain_digest(e relevo.notification_events, i relevo.device_installations) returns jsonb
  language plpgsql stable
as $$
declare
  soonest text;
  slot relevo.digest_slots;
  told jsonb;
  told_number bigint;
begin
  select p.delivery into soonest from relevo.notification_preferences p
   where p.installation_id = i.installation_id and relevo.preference_matches(p, e) order by relevo.delivery_rank(p.delivery) limit 1;
  select jsonb_build_object('rule', 'digested', 'digest', g.event_id, 'delivery', g.delivery, 'zone', g.zone, 'at', g.closed_at) into told
    from relevo.notification_deliveries d
    join relevo.digests g on g.event_id = d.notification_event_id
    join relevo.digest_contents c on c.event_id = g.event_id and c.seq = i.seq
   where d.installation_id = i.installation_id and d.event_type = 'relevo.digest' and d.event_day >= e.event_day and c.event_id - e.id = any (c.offsets)
   limit 1;
  if told is null then
    select s.* into slot from relevo.digest_extras x
      join relevo.digest_slots s on s.project = x.project and s.delivery = x.delivery and s.zone = x.zone
     where x.installation_id = i.installation_id and x.event_id = e.id;
    if found then
      return jsonb_build_object('rule', 'in_digest', 'delivery', slot.delivery, 'zone', slot.zone, 'at', slot.closes_at);
    end if;
  end if;
  select n.number into told_number from relevo.digest_events n where n.event_id = e.id;
  if told is not null or soonest is null or (e.fanout_finished_at is not null and not found)
     or exists (select from relevo.notification_deliveries d
                 where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = i.installation_id) then
    return told;
  end if;
  select s.* into slot from relevo.digest_slots s
   where s.project = i.project and s.delivery = soonest and s.zone = relevo.digest_zone(i);
  if not found or told_number <= slot.after_number or e.fanout_upto < i.seq then
    return null;
  end if;
  return jsonb_build_object('rule', 'in_digest', 'delivery', slot.delivery, 'zone', slot.zone, 'at', slot.closes_at);
end
$$;

revoke all on function relevo.explain_digest from public;
