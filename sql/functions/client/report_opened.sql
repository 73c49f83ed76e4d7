-- Records that a push was opened, as its phone reports. Returns noted; known if that was reported before; off if the event's type does not count
-- taps; too_late 30 days after it was sent or once its month is archived; unsent if no push service can have accepted it; gone if this phone has no
-- such delivery. Clocks of phones are wrong at times: the recorded instant is neither before the push was sent nor in the future.
create or replace function relevo.report_opened(installation uuid, delivery bigint, at timestamptz default null, action text default null) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  d record;
  asks relevo.event_types;
begin
  if installation is null or delivery is null then
    perform relevo.refuse('installation and delivery must be given');
  end if;
  perform relevo.check_texts(jsonb_build_object('action', action), '{"action": 100}');
  select n.event_day, n.id, n.notification_event_id as event_id, n.event_type, n.project, n.created_at, i.owner, i.project as owner_project,
         case when n.attempt_count = 1 then n.last_attempt_at else n.created_at end as sent_at, coalesce(i.owner_since, '-infinity') as owner_since,
         relevo.was_handed_over(n) as handed_over
    into d
    from relevo.notification_deliveries n
    join relevo.device_installations i on i.installation_id = n.installation_id
   where n.installation_id = installation and n.id = delivery;
  if not found then
    return 'gone';
  end if;
  select t.* into asks from relevo.event_types t where t.event_type = d.event_type;
  if (asks.opens or asks.complete_on = 'opened') is not true then
    return 'off';
  end if;
  if d.sent_at < now() - interval '30 days' or relevo.hold_open(array[d.event_day]) = '{}' then
    return 'too_late';
  end if;
  if not d.handed_over then
    return 'unsent';
  end if;
  if asks.opens then
    update relevo.notification_deliveries n
       set opened_at = least(greatest(coalesce(at, now()), d.sent_at), now()), opened_action = action
     where n.event_day = d.event_day and n.id = d.id and n.opened_at is null;
    if not found then
      return 'known';
    end if;
    insert into relevo.event_reactions (event_id, kind, count) values (d.event_id, 'opened', 1);
    if relevo.is_news('delivery.opened') then
      insert into relevo.news_inbox (at, kind, project, event_id, delivery_id, installation_id, data)
      values (now(), 'delivery.opened', relevo.name_of_project(d.project), d.event_id, d.id, installation,
              jsonb_build_object('event_type', d.event_type, 'action', action, 'opened_at', least(greatest(coalesce(at, now()), d.sent_at), now())));
    end if;
  end if;
  if asks.complete_on = 'opened' and d.created_at >= d.owner_since then -- not for who has the phone now
    perform relevo.complete_reacted(array[d.event_id], d.owner, d.owner_project, 'opened');
  end if;
  return 'noted';
end
$$;

revoke all on function relevo.report_opened from public;
