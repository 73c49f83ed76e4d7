-- Returns the digest that includes an event, enqueued or a draft, for a phone in place of a push: the one that was sent (digested, with the state
-- of its push), or the next one (in_digest), with its time. Null if there is none.
create or replace function relevo.explain_digest(e relevo.notification_events, i relevo.device_installations) returns jsonb
  language plpgsql stable
as $$
declare
  told jsonb;
  soonest text;
  is_now boolean;
begin
  if e.fanout_started_at is null then
    select (array_agg(p.delivery order by relevo.delivery_rank(p.delivery)))[1], bool_or(p.delivery is null) into soonest, is_now
      from relevo.notification_preferences p where p.installation_id = i.installation_id and relevo.preference_matches(p, e);
    return case when not is_now then jsonb_build_object('rule', 'in_digest', 'delivery', soonest, 'zone', relevo.digest_zone(i),
                                                        'at', relevo.next_digest(soonest, relevo.digest_zone(i), greatest(now(), e.scheduled_at))) end;
  end if;
  select jsonb_build_object('rule', 'in_digest', 'delivery', s.delivery, 'zone', s.zone, 'at', s.closes_at) into told
    from relevo.digest_items x join relevo.digest_slots s on s.id = x.slot_id
   where x.seq = i.seq and x.event_id = e.id;
  if found then
    return told;
  end if;
  select jsonb_build_object('rule', 'digested', 'digest', g.event_id, 'delivery', g.delivery, 'zone', g.zone, 'at', g.closed_at, 'status', d.status, 'error_code', d.last_error_code)
    into told
    from relevo.notification_deliveries d
    join relevo.digests g on g.event_id = d.notification_event_id
    join relevo.digest_contents c on c.event_id = g.event_id and c.seq = i.seq
   where d.installation_id = i.installation_id and d.event_type = 'relevo.digest' and d.event_day >= e.event_day
     and (c.event_id - e.id = any (c.offsets) or c.total > cardinality(c.offsets)) -- of more than a thousand the others are not listed
   order by c.event_id - e.id = any (c.offsets) desc, c.event_id limit 1;
  return told;
end
$$;

revoke all on function relevo.explain_digest from public;
