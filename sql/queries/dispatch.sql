-- name: read_targets
-- Reads where the deliveries of a claim go, and whether each still may: its installation, preference, deadline and event.
select d.id, i.token, i.token_version, i.platform, i.locale,
       case when e.id is null then 'event_gone'
            when e.ended_at is not null then 'event_ended'
            when i.handled_before >= d.created_at then 'handled_elsewhere'
            when d.deadline_at <= coalesce(%(now)s::timestamptz, now()) then 'deadline_passed'
            when i.installation_id is null then 'installation_gone'
            when not relevo.may_receive(i) then 'not_allowed'
            when e.category = any (i.opt_outs) then 'opted_out'
            when e.audience = 'matching' and not exists (
              select from relevo.notification_preferences p
               where p.installation_id = d.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
       end as obstacle,
       extract(epoch from d.deadline_at - coalesce(%(now)s::timestamptz, now()))::float8 as seconds_left
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select d.id, d.notification_event_id, d.installation_id, d.created_at, d.deadline_at
                        from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id and d.claim_token = %(token)s
                      offset 0) d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join relevo.device_installations i on i.installation_id = d.installation_id;

-- name: read_contents
-- Reads what some events say.
select e.id, e.title, e.body, e.data, e.push from relevo.notification_events e where e.id = any (%(events)s::bigint[]);
