-- Fans out small personal events, which the caller has picked and locked, in one go; only to phones of their project if they have one. Returns
-- the events and phones of the deliveries if they are watched, and no row if today's month is sealed.
-- Steps: find the phones, insert deliveries, queue them in chunks, mark the events as fanned, count.
create or replace function relevo.fan_out_events(of_events bigint[], watched boolean, given_at timestamptz)
  returns table (created int, events bigint[], installations uuid[])
  language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  today date := (at at time zone 'UTC')::date;
  owners_in text := relevo.project_of_owners(); -- of events without project
begin
  perform relevo.ensure_partitions(today, 1);
  if relevo.hold_open(array[today]) = '{}' then
    return;
  end if;
  return query
  with targets as materialized ( -- an event that reaches nobody stands here once, without a phone
    select g.place, e.id as event_id, e.event_type, e.lane, e.at_most_once, e.deadline_at, t.installation_id, t.provider, t.project, t.owner, t.inbox_id
      from unnest(of_events) with ordinality as g(id, place)
      cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
      cross join lateral (select relevo.category_rule(e.category) as rule offset 0) c
      left join lateral (
        select (n.phone).installation_id, (n.phone).provider, relevo.sending_project((n.phone).provider, (n.phone).project, (n.phone).part) as project,
               (n.phone).owner, coalesce(n.inbox_id, (n.phone).inbox_id) as inbox_id -- a phone that is named is meant with the owner it had then
          from (select p.phone, a.inbox_id from relevo.event_audience a
                  cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) p
                 where a.event_id = e.id
                union all
                select p.phone, null from relevo.event_owners o
                  cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner
                                        and i.project = coalesce(e.project, owners_in, i.project) offset 0) p
                 where o.event_id = e.id) n
         where relevo.may_receive(n.phone) and (e.project is null or (n.phone).project = e.project) and relevo.unwanted((n.phone).opt_outs, (n.phone).refused, (n.phone).accepted, e.category, c.rule) is null
           and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                             join relevo.notification_events o on o.id = f.former_event_id
                             join relevo.notification_deliveries d
                               on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = (n.phone).installation_id
                            where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))) t on true
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at, inbox_id)
    select today, t.event_id, t.installation_id, t.event_type, t.provider, t.project, t.lane, t.at_most_once, t.deadline_at, now(), t.inbox_id
      from targets t
     where t.installation_id is not null
     order by t.place
    returning id, notification_event_id, installation_id, event_type, project, lane, created_at, inbox_id
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations, inboxes)
    select m.project, m.lane, at, today, m.notification_event_id, m.event_type, m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id),
           case when count(m.inbox_id) > 0 then array_agg(m.inbox_id) end
      from made m
     group by m.project, m.lane, m.notification_event_id, m.event_type, m.created_at
     order by min(m.id)
  ), counted as materialized (
    select t.event_id, count(t.installation_id)::int as deliveries from targets t group by t.event_id
  ), fanned as (
    update relevo.notification_events e
       set state = 'fanned', event_day = today, fanout_started_at = at, fanout_finished_at = at, updated_at = at,
           fanout_upto = u.seq, fanout_cursor = u.seq, targets_selected = c.deliveries, deliveries_created = c.deliveries
      from counted c
      cross join (select coalesce(max(i.seq), 0) as seq from relevo.device_installations i) u
     where e.id = c.event_id
  ), missed as ( -- owners without a phone find it in their inbox
    update relevo.event_owners o set inbox_place = nextval('relevo.delivery_ids')
     where o.event_id = any (of_events)
       and not exists (select from targets t where t.event_id = o.event_id and t.owner = o.owner and t.installation_id is not null)
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select c.event_id, 'pending', c.deliveries from counted c where c.deliveries > 0
  )
  select count(*)::int, case when watched then array_agg(m.notification_event_id) end, case when watched then array_agg(m.installation_id) end from made m;
end
$$;

revoke all on function relevo.fan_out_events from public;
