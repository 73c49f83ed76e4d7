-- Enqueues a usual event for given phones or owners by one small insert; returns no row for any other, and for one whose key is known, which
-- enqueue_any_type takes. It writes what write_events would, and earns 24 % of the row enqueue of `make bench ARGS="--only enqueue"`, run with it
-- and without in turns.
create or replace function relevo.enqueue_plain(event jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set enable_seqscan = off -- lookups only
as $$
declare
  lane_of text;
begin
  if (event ->> 'audience' in ('installations', 'owners') and not starts_with(event ->> 'type', 'relevo.') and relevo.is_plain_event(event)) is not true then
    return;
  end if;
  insert into relevo.notification_events as n (event_type, event_key, title, body, data, push, audience, category, lane, at_most_once, scheduled_at, deadline_at,
    content_hash, opens, unread_badge, project, traceparent)
  select g.event_type, g.event_key, event ->> 'title', coalesce(event ->> 'body', ''), coalesce(nullif(event -> 'data', 'null'), '{}'),
         case when g.is_unread_badge then (event -> 'push') - 'badge' else coalesce(nullif(event -> 'push', 'null'), '{}') end,
         'installations', event ->> 'category', coalesce(event ->> 'lane', t.lane, 'bulk'), coalesce((event ->> 'at_most_once')::boolean, t.at_most_once, false), g.at,
         relevo.check_deadline(coalesce(relevo.event_time(event, 'deadline_at', null), g.at + coalesce((event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), g.at, null),
         relevo.content_hash(event, g.at, null), -- of a personal event, whose deadline it leaves out
         nullif(t.opens or t.complete_on = 'opened', false), nullif(g.is_unread_badge, false), g.project, event ->> 'traceparent'
    from (select event ->> 'type' as event_type, event ->> 'key' as event_key, event ->> 'project' as project, event -> 'push' ->> 'badge' = 'unread' as is_unread_badge,
                 relevo.hidden_key(event ->> 'type', event ->> 'key') as hidden_key,
                 coalesce(case when event ? 'scheduled_at' then relevo.event_time(event, 'scheduled_at', null) end, now()) as at) g
    left join relevo.event_types t on t.event_type = g.event_type
   where not exists (select from relevo.known_key(g.event_type, g.event_key, g.hidden_key, g.project))
  on conflict (event_type, event_key, coalesce(project, '')) do nothing
  returning n.id, n.lane into event_id, lane_of;
  if not found then
    return;
  end if;
  if event ->> 'audience' = 'owners' then
    insert into relevo.event_owners (event_id, owner) select enqueue_plain.event_id, o from jsonb_array_elements_text(event -> 'owners') as o on conflict do nothing;
  else
    insert into relevo.event_audience (event_id, installation_id, inbox_id)
    select enqueue_plain.event_id, i.installation, (select d.inbox_id from relevo.device_installations d where d.installation_id = i.installation)
      from (select distinct i::uuid as installation from jsonb_array_elements_text(event -> 'installations') as i) i;
    unknown_installations := array(
      select i::uuid from jsonb_array_elements_text(event -> 'installations') as i
       where not exists (select from relevo.device_installations d where d.installation_id = i::uuid and d.project = coalesce(event ->> 'project', d.project) offset 0)); -- one by one, in order
  end if;
  if lane_of = 'urgent' then
    perform relevo.wake_now('fanout');
  else
    perform relevo.wake('fanout');
  end if;
  return query select enqueue_plain.event_id, true, true, coalesce(enqueue_plain.unknown_installations, '{}');
end
$$;

revoke all on function relevo.enqueue_plain from public;
