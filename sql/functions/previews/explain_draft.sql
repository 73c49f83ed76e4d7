-- Returns why an installation gets an event, enqueued or a draft, or not; the caller tells whether the event names it, and for which owners it is.
-- The first rule that decides is named, in the order of the cases, with its values: pages make a sentence of these in any language, and `reason` is
-- the English one.
create or replace function relevo.explain_draft(e relevo.notification_events, names_it boolean, owners text[], installation uuid) returns jsonb
  language plpgsql stable
as $$
declare
  i relevo.device_installations;
  d relevo.notification_deliveries;
  done relevo.event_completions;
  fitting text;
  misses jsonb := '[]';
  rule text;
  why text;
  about jsonb := '{}';
  gets boolean := false;
  unwanted text;
  quiet jsonb;
  digest jsonb;
  cap jsonb;
  batch jsonb;
  made record; -- for which owner it was made, and when
begin
  select n.* into i from relevo.device_installations n where n.installation_id = installation;
  if e.event_day is not null then
    select n.* into d from relevo.notification_deliveries n
     where n.event_day = e.event_day and n.notification_event_id = e.id and n.installation_id = installation;
  end if;
  select c.* into done from relevo.event_completions c where c.event_id = e.id and c.owner = i.owner and coalesce(c.project, i.project) = i.project limit 1;
  select n.* into made
    from (select d.inbox_id, d.created_at as at, d.status in ('pending', 'retryable') or d.last_error_code = 'batched' as is_open where d.id is not null
          union all
          select a.inbox_id, e.created_at, e.fanout_finished_at is null or a.inbox_id is null from relevo.event_audience a
           where d.id is null and a.event_id = e.id and a.installation_id = installation) n;
  if e.audience = 'matching' then
    select min(p.name) filter (where m.mismatch is null),
           coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'differs_in', m.mismatch) order by p.name) filter (where m.mismatch is not null), '[]')
      into fitting, misses
      from relevo.notification_preferences p
      cross join lateral (select relevo.preference_mismatch(p, e) as mismatch) m
     where p.installation_id = installation;
  end if;
  if d.id is null and e.fanout_finished_at is null or d.status in ('pending', 'retryable') then
    quiet := relevo.explain_quiet(e, i, d.id, greatest(now(), e.scheduled_at));
  elsif d.id is not null then
    select jsonb_build_object('verdict', 'silent', 'at', s.at, 'reason', case when e.event_type = 'relevo.digest' then 'It was sent without a sound because this phone had quiet hours, or the digest was late.'
                                                                               else 'It was sent without a sound because this phone had quiet hours.' end) into quiet
      from relevo.silent_pushes s where s.event_id = e.id and s.delivery_id = d.id;
  end if;
  if fitting is not null and d.id is null and e.fanout_finished_at is null or d.last_error_code = 'in_digest' then
    digest := relevo.explain_digest(e, i);
  end if;
  if d.id is null and e.fanout_finished_at is null and i.installation_id is not null and exists (select from relevo.caps) then
    cap := relevo.explain_cap(e, i, coalesce((quiet ->> 'due_at')::timestamptz, greatest(now(), e.scheduled_at)));
  end if;
  if d.last_error_code = 'batched' then
    batch := relevo.explain_batch(e, i, d.inbox_id);
  end if;
  unwanted := relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, relevo.category_rule(e.category));
  case
    when e.id is null then
      rule := 'event_gone'; why := 'There is no such event, or it was archived.';
    when i.installation_id is null then
      rule := 'installation_gone'; why := 'There is no such installation.';
    when d.status = 'skipped' and d.last_error_code = 'shadow' then
      rule := 'shadow'; why := 'Relevo did not send this push: shadow mode was on.';
    when d.last_error_code = 'owner_changed'
         or made.is_open and batch ->> 'event' is null and relevo.is_for_another(e.audience, made.inbox_id, made.at, i.installation_id, i.inbox_id, i.owner_since) then
      rule := 'owner_changed'; why := 'This phone belongs to another owner now, or to none. The event stays in the inbox of the owner it was for.';
    when e.audience = 'everyone' and i.for_news then
      rule := 'not_named'; why := 'It is an address for news and gets no events.'; about := jsonb_build_object('for_news', true);
    when e.audience = 'installations' and not (coalesce(names_it, false) or coalesce(i.owner = any (owners), false)) then
      rule := 'not_named'; why := 'The event is for others: it names neither this installation nor its owner.';
    when e.project is null and not coalesce(names_it, false) and e.audience = 'installations' and i.project <> relevo.project_of_owners() then
      rule := 'not_named'; about := jsonb_build_object('project', 'default');
      why := format('The event names no project, so it is for owners in the project default. Enqueue it with the project %s, or run `relevo owner names shared`.', i.project);
    when digest ->> 'rule' = 'digested' then
      rule := 'digested'; about := digest - 'rule'; gets := coalesce(digest ->> 'status', '') not in ('skipped', 'cancelled', 'expired', 'invalid', 'failed');
      why := format(case when gets then 'The digest of %s (%s) included it.' else 'The digest of %s (%s) included it; the push of the digest ended as %s.' end,
                    to_char((digest ->> 'at')::timestamptz at time zone (digest ->> 'zone'), 'YYYY-MM-DD HH24:MI'), digest ->> 'zone', digest ->> 'status');
    when d.status = 'skipped' and d.last_error_code <> all ('{in_digest,event_ended}') and d.last_error_message like '%' || relevo.why_undigested(d.last_error_code) then
      rule := d.last_error_code; why := d.last_error_message; about := jsonb_build_object('category', e.category);
    when e.project <> i.project then
      rule := 'not_named'; why := format('The event is for the phones of project %s.', e.project); about := jsonb_build_object('project', e.project);
    when not relevo.may_receive(i) then
      rule := 'not_allowed'; why := format('Pushes may not go to it: %s.', replace(relevo.why_not_allowed(i), 'token_moved', 'its push token belongs to another installation now'));
      about := jsonb_build_object('why_not', relevo.why_not_allowed(i));
    when unwanted is not null then
      rule := unwanted; about := jsonb_build_object('category', e.category);
      why := format(case unwanted when 'opted_out' then 'It opted out of the category %s.' when 'refused' then 'Its owner refused the category %s.'
                                  else 'Its owner has not accepted the category %s, which is off until then.' end, e.category);
    when e.match_where is not null and d.id is null and relevo.attribute_mismatch(relevo.known_attributes(i.owner_attributes, i.attributes), e.match_where) is not null then
      rule := 'attribute_differs';
      about := jsonb_build_object('attribute', relevo.attribute_mismatch(relevo.known_attributes(i.owner_attributes, i.attributes), e.match_where));
      about := about || jsonb_build_object('has', relevo.known_attributes(i.owner_attributes, i.attributes) -> (about ->> 'attribute'), 'wanted', e.match_where -> (about ->> 'attribute'));
      why := format('Its attribute %s is %s, and the event is for %s.', about ->> 'attribute', relevo.shown(about -> 'has'), relevo.shown(about -> 'wanted'));
    when e.audience = 'matching' and misses = '[]' and fitting is null then
      rule := 'no_preference'; why := 'It has no preferences, so no event matches it.';
    when e.audience = 'matching' and fitting is null then
      rule := 'preference_differs';
      why := format('None of its preferences matches: %s.', (select string_agg(case m ->> 'differs_in' when 'disabled' then format('%s is disabled', m ->> 'name')
               else format('%s differs in %s', m ->> 'name', m ->> 'differs_in') end, ', ') from jsonb_array_elements(misses) m));
    when batch ->> 'event' is not null then
      rule := 'batched'; about := batch; gets := coalesce(batch ->> 'status', '') not in ('skipped', 'cancelled', 'expired', 'invalid', 'failed');
      why := case when gets then format('It was announced together with %s others by event %s.', (batch ->> 'count')::int - 1, batch ->> 'event')
                  else format('Event %s announced it; the push of that event ended as %s.', batch ->> 'event', batch ->> 'status') end;
    when done.event_id is not null then
      rule := 'handled_elsewhere'; why := 'Its owner handled the event on another phone' || coalesce(': ' || done.reason, '') || '.';
      about := jsonb_build_object('reason', done.reason);
    when d.id is not null and i.handled_before >= d.created_at then
      rule := 'handled_elsewhere'; why := 'Everything for it was handled elsewhere' || coalesce(': ' || i.handled_reason, '') || '.';
      about := jsonb_build_object('reason', i.handled_reason);
    when d.last_error_code = 'superseded' or d.status in ('pending', 'retryable') and e.collapse is not null and relevo.is_superseded(e.id, e.event_type, e.collapse, e.scheduled_at, d.event_day, installation, d.inbox_id) then
      rule := 'superseded'; why := 'A later event of the same type and collapse key replaced it.';
    when e.ended_at is not null then
      rule := 'event_ended'; why := format('The event was %s', e.state) || coalesce(': ' || e.end_reason, '') || '.';
      about := jsonb_build_object('state', e.state, 'reason', e.end_reason);
    when e.deadline_at <= now() and d.id is null then
      rule := 'deadline_passed'; why := 'Its deadline has passed.';
    when digest is not null then
      rule := 'in_digest'; about := digest - 'rule'; gets := true;
      why := format('The digest of %s (%s) includes it.', to_char((digest ->> 'at')::timestamptz at time zone (digest ->> 'zone'), 'YYYY-MM-DD HH24:MI'), digest ->> 'zone');
    when d.last_error_code = 'batched' then
      rule := 'batched'; about := coalesce(batch, '{}'); gets := batch is not null;
      why := case when gets then format('One push announces it together with others of its kind, at %s UTC.', to_char((batch ->> 'until')::timestamptz at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
                  else 'It was gathered with others of its kind, and handled before their push was sent.' end;
    when e.fanout_finished_at is not null and d.id is null then
      rule := 'came_later'; why := 'The event had fanned out before this installation could receive it.';
    when d.last_error_code in ('capped', 'in_digest') then
      rule := 'capped'; why := d.last_error_message; about := jsonb_build_object('reason', d.last_error_message);
    when cap is not null then
      rule := 'capped'; why := cap ->> 'reason'; about := cap;
    when d.status = 'expired' and d.last_error_code = 'quiet_hours' then
      rule := 'quiet_expired'; why := 'Its deadline fell into the quiet hours of this phone, and events of its type expire then.';
    when quiet ->> 'verdict' in ('wait', 'expired') then
      gets := quiet ->> 'verdict' = 'wait'; rule := case when gets then 'quiet_hours' else 'quiet_expired' end;
      why := quiet ->> 'reason'; about := quiet - 'reason';
    else
      gets := true;
      rule := case when e.audience = 'matching' then 'preference'
                   when e.audience = 'everyone' then 'everyone'
                   when e.audience = 'attributes' then 'attributes'
                   when names_it then 'named'
                   else 'owner' end;
      why := case rule when 'preference' then format('Its preference %s matches.', fitting)
                       when 'everyone' then 'The event is for everyone.'
                       when 'attributes' then 'It has the attributes that the event is for.'
                       when 'named' then 'The event names this installation.'
                       else format('The event is for its owner, %s.', i.owner) end;
      about := case when rule = 'owner' then jsonb_build_object('owner', i.owner) else about end || case when quiet is not null then jsonb_build_object('quiet', quiet - 'reason') else '{}' end;
      why := why || coalesce(' ' || (quiet ->> 'reason'), '');
  end case;
  return jsonb_build_object('gets_it', rule not in ('superseded', 'owner_changed') and coalesce(case when rule in ('batched', 'digested', 'in_digest') then gets end, d.status in ('pending', 'retryable', 'sent', 'ok', 'unconfirmed', 'unknown'), gets), 'rule', rule, 'reason', why,
    'values', about, 'preference', fitting, 'differing_preferences', misses,
    'delivery', case when d.id is not null then jsonb_build_object('id', d.id, 'status', d.status, 'attempts', d.attempt_count,
                       'error_code', d.last_error_code, 'provider', d.provider, 'updated_at', d.updated_at) end);
end
$$;

revoke all on function relevo.explain_draft from public;
