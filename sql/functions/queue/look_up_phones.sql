-- Returns where the deliveries of some chunks go and what keeps each from being sent now, chunk by chunk in their order. `quiet` is null where no
-- phone of a chunk has quiet hours now; else of each that has when it may be sent to, and if nothing keeps it, it goes silently. Also the lease.
-- A digest that is more than an hour late goes silently, too, also if tries that failed made it late. Of a chunk of several events
-- the event of each delivery is returned, too, with what is that event's own.
create or replace function relevo.look_up_phones(chunks relevo.due_chunks[], at timestamptz, lease int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], quiet timestamptz[], lease_ms int, events bigint[],
                 once boolean[], deadlines timestamptz[], seconds float8[])
  language sql stable
as $$
  with superseded as materialized (select s.event_id, s.installation_id from relevo.superseded(chunks) s) -- asked only where an event has a collapse key
  select c.event_day, c.event_id, c.event_type, coalesce(e.at_most_once, false), c.attempt_count, c.lapse_count, e.deadline_at,
         extract(epoch from e.deadline_at - at)::float8, c.created_at, c.ids, c.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.quiet,
         lease, c.events, l.once, l.deadlines, l.seconds
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral (select case when e.category is not null then relevo.category_rule(e.category) end as rule,
                               c.event_type = 'relevo.digest' and c.due_at < at - interval '1 hour' as is_late, -- it wakes nobody
                               c.event_type = 'relevo.digest' and c.had_error and e.scheduled_at < at - interval '1 hour' as is_old, -- tried before: it may be late, too
                               (select exists (select from relevo.quiet_profiles))
                               and (cardinality(c.installations) = 1 or relevo.any_quiet(c.installations, coalesce(c.events, array[c.event_id]), at, '{wait,silent}')) as any_quiet offset 0) r
    cross join lateral (
      select array_agg(i.token) as tokens, array_agg(i.token_version) as versions, array_agg(i.platform) as platforms, array_agg(i.locale) as locales,
             case when c.events is not null then array_agg(v.at_most_once) end as once, case when c.events is not null then array_agg(v.deadline_at) end as deadlines, case when c.events is not null then array_agg(extract(epoch from v.deadline_at - at)::float8) end as seconds,
             case when count(n.due_at) > 0 or r.is_late or bool_or(o.is_late) then array_agg(case when r.is_late or o.is_late then coalesce(n.due_at, at) else n.due_at end) end as quiet,
             array_agg(coalesce(
               relevo.event_obstacle(v.id, v.ended_at, v.deadline_at, at, i.handled_before >= c.created_at
                 or i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                      select from relevo.event_completions h where h.event_id = v.id and h.owner = i.owner and coalesce(h.project, i.project) = i.project)),
               case when v.collapse is not null and (v.id, u.installation_id) in (select s.event_id, s.installation_id from superseded s) then 'superseded' end,
               case when v.project <> i.project then 'project_changed'
                    when (u.inbox_id is distinct from i.inbox_id or u.inbox_id is null and i.owner_since > c.created_at) and i.installation_id is not null
                         and relevo.is_for_another(v.audience, u.inbox_id, c.created_at, i.installation_id, i.inbox_id, i.owner_since) then 'owner_changed' end,
               relevo.obstacle_of_phone(i.installation_id, i.may_receive, relevo.unwanted(i.opt_outs, i.refused, i.accepted, v.category, v.rule)),
               case when v.audience = 'matching' and not exists (
                      select from relevo.notification_preferences p
                       where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
                    when (i.token_taken_at >= v.fanout_started_at) is true -- unknown would not keep the next from being asked
                         and relevo.was_sent_to_token(c.event_day, v.id, u.installation_id, i.token_name, v.fanout_started_at) then 'told_already'
                    -- it waits where its phone was before; settled, it goes to the new place. One of Expo's is sent from there, for 0.3.0 would not move it
                    when c.project <> i.sending_project and (i.provider <> 'expo' or c.project like '%::%') then 'token_changed'
                    when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                      select from relevo.event_repeats r where r.event_id = v.id and r.held_at is not null) then 'repeats_held'
                    when n.verdict = 'wait' then 'quiet_hours'
                    when n.verdict = 'expired' then 'quiet_expired'
               end)) as obstacles
        from unnest(c.installations, c.inboxes, c.events) as u(installation_id, inbox_id, event_id)
        -- of several events each delivery's own; of one the chunk's
        left join lateral (select x.id, x.at_most_once, x.ended_at, x.deadline_at, x.collapse, x.project, x.audience, x.category, x.fanout_started_at
                             from relevo.notification_events x where x.id = u.event_id offset 0) own on true
        cross join lateral (select case when c.events is null then e.id else own.id end as id, case when c.events is null then e.ended_at else own.ended_at end as ended_at,
                                   case when c.events is null then e.deadline_at else own.deadline_at end as deadline_at, case when c.events is null then e.collapse else own.collapse end as collapse,
                                   case when c.events is null then e.project else own.project end as project, case when c.events is null then e.audience else own.audience end as audience, case when c.events is null then e.category else own.category end as category,
                                   case when c.events is null then r.rule when own.category is not null then relevo.category_rule(own.category) end as rule,
                                   case when c.events is null then e.fanout_started_at else own.fanout_started_at end as fanout_started_at, coalesce(own.at_most_once, false) as at_most_once) v
        -- looked up one by one: the arrays are in the order of the chunk, whatever the plan
        left join lateral (select x.installation_id, x.provider, x.token, x.token_version, x.platform, x.locale, x.owner, x.owner_since, x.inbox_id, x.handled_before, x.opt_outs, x.refused, x.accepted, x.token_taken_at,
                                  relevo.token_name(x.provider, x.part, x.token) as token_name, relevo.sending_project(x.provider, x.project, x.part) as sending_project,
                                  relevo.may_receive(x) as may_receive, x.quiet, x.owner_quiet, x.timezone, x.project
                             from relevo.device_installations x where x.installation_id = u.installation_id offset 0) i on true
        left join lateral (select not exists (select from relevo.quiet_of(i.quiet, i.owner_quiet, i.project, i.timezone) q -- else its quiet hours ended since
                                               where q.windows @> relevo.minute_of_week((at - interval '1 hour') at time zone q.zone)) as is_late where r.is_old) o on true
        left join lateral (select n.* from relevo.quiet_now(case when c.events is null then e else (select x from relevo.notification_events x where x.id = v.id) end, i.quiet, i.owner_quiet, i.project, i.timezone, u.installation_id, at) n
                            where r.any_quiet and (i.quiet is not null or i.owner_quiet is not null
                                   or i.installation_id is not null and (select exists (select from relevo.quiet_defaults))) offset 0) n on true) l
$$;

revoke all on function relevo.look_up_phones from public;
