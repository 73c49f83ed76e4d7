-- name: save_wording
-- Saves texts that were rendered with their sample as the next version of their type.
select relevo.save_wording(%(given)s::jsonb);

-- name: read_wording
-- Reads a version of the texts of an event type, or the current one.
select w.event_type, w.version, w.default_locale, w.texts, w.arguments, w.zoned, w.bytes, w.created_at
  from relevo.wordings w
 where w.event_type = %(event_type)s and (%(version)s::int is null or w.version = %(version)s)
 order by w.version desc
 limit 1;

-- name: list_wordings
-- Lists the event types that have texts, each with its current version, up to half a megabyte of texts or one type; `listed` is how many there were
-- within the limit.
select w.event_type, w.version, w.default_locale, w.texts, w.arguments, w.zoned, w.bytes, w.created_at, w.listed
  from (select w.*, sum(octet_length(w.texts::text)) over (order by w.event_type) as weight, row_number() over (order by w.event_type) as place,
               count(*) over () as listed
          from (select distinct on (w.event_type) w.*
                  from relevo.wordings w
                 where w.event_type > coalesce(%(after)s::text, '')
                 order by w.event_type, w.version desc
                 limit %(limit)s) w) w
 where w.weight <= 500000 or w.place = 1
 order by w.event_type;

-- name: list_worded_types
-- Lists the first hundred event types that have texts, by name alone.
select distinct w.event_type from relevo.wordings w order by w.event_type limit 100;

-- name: list_types_rendered_late
-- Lists the event types whose texts are rendered when they are sent: in some version they name a time, or they tell digests.
select distinct w.event_type from relevo.wordings w where w.zoned or w.event_type = 'relevo.digest';

-- name: list_providers
-- Lists the push services that this fleet serves, or has served.
select p.provider from relevo.providers p order by p.provider;

-- name: pick_unworded
-- Locks due events that wait for their texts. Each row has the newest version that fits the event's arguments, and how many bytes remain for a text
-- beside the data. With `only_late` it takes only events whose deadline passed, with an id only that event.
select e.id, e.event_type, w.version, w.zoned is true, e.arguments::text, 4096 - relevo.push_bytes('', '', e.data, e.push) - case when e.collapse is not null then 64 else 0 end, (e.deadline_at <= relevo.now(%(now)s)) is true
  from relevo.notification_events e
  left join lateral (select w.version, w.zoned from relevo.wordings w
                      where w.event_type = e.event_type and relevo.arguments_complaint(w.arguments, e.arguments) is null
                      order by w.version desc limit 1) w on true
 where e.arguments is not null and e.texts is null and e.state = 'waiting' and e.scheduled_at <= relevo.now(%(now)s)
   and (not %(only_late)s or e.deadline_at <= relevo.now(%(now)s)) and e.id <> all (%(given_up)s::bigint[])
   and (e.fanout_retry_at is null or e.fanout_retry_at <= relevo.now(%(now)s)) and (%(event_id)s::bigint is null or e.id = %(event_id)s)
 order by e.lane desc, e.scheduled_at, e.id
 limit %(limit)s
   for update of e skip locked;

-- name: read_zones_of_events
-- Reads the time zones for which an event's texts may be needed: the project's zone, and the zones of the phones if the event names owners or
-- phones and has at most 100 phones. Phones that may not receive pushes count only if no phone of the event may.
select e.id, coalesce(p.receiving, p.others, '{}'), relevo.project_zone(coalesce(e.project, p.project, relevo.project_of_owners()))
  from unnest(%(events)s::bigint[]) as g(id)
  cross join lateral (select e.id, e.project from relevo.notification_events e where e.id = g.id offset 0) e
  cross join lateral (
    select array_agg(distinct n.zone) filter (where n.zone is not null and n.may_receive and n.phones <= 100) as receiving,
           array_agg(distinct n.zone) filter (where n.zone is not null and n.phones <= 100) as others,
           case when min(n.project) = max(n.project) then min(n.project) end as project
      from (select n.project, n.may_receive, relevo.said_zone(n.timezone, n.quiet, n.owner_quiet, null) as zone, sum(n.phones) over () as phones
              from (select (n.phone).project, relevo.may_receive(n.phone) as may_receive, (n.phone).timezone, (n.phone).quiet, (n.phone).owner_quiet, count(*) as phones
                      from (select p.phone from relevo.event_audience a
                              cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id
                                                    and i.project = coalesce(e.project, i.project) offset 0) p
                             where a.event_id = e.id
                            union all
                            select p.phone from relevo.event_owners o
                              cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner
                                                    and i.project = coalesce(e.project, relevo.project_of_owners(), i.project) offset 0) p
                             where o.event_id = e.id
                             limit 101) n
                     group by 1, 2, 3, 4, 5) n) n) p;

-- name: word_events
-- Writes what events say, in every language that their type has texts in, and lets them fan out.
update relevo.notification_events e
   set title = g.title, body = g.body, texts = g.texts::jsonb, wording = g.version, turn_at = null, fanout_failures = null, fanout_retry_at = null, fanout_error = null, updated_at = relevo.now(%(now)s)
  from unnest(%(events)s::bigint[], %(versions)s::int[], %(titles)s::text[], %(bodies)s::text[], %(texts)s::text[]) as g(id, version, title, body, texts)
 where e.id = g.id and e.texts is null;

-- name: end_unworded
-- Ends events that have no text that could be shown, each with what was wrong.
update relevo.notification_events e
   set state = 'cancelled', ended_at = relevo.now(%(now)s), swept_at = relevo.now(%(now)s), end_reason = left(g.why, 300), updated_at = relevo.now(%(now)s)
  from unnest(%(events)s::bigint[], %(whys)s::text[]) as g(id, why)
 where e.id = g.id and e.state = 'waiting';

-- name: read_project_locale
-- Reads the locale of a project's phones whose own language has no text.
select relevo.project_locale(%(project)s);

-- name: list_project_locales
-- Lists the projects that a locale was set for.
select l.project, l.locale from relevo.project_locales l order by l.project;

-- name: set_project_locale
-- Sets the locale of a project's phones whose own language has no text.
insert into relevo.project_locales (project, locale) values (%(project)s, %(locale)s)
on conflict (project) do update set locale = excluded.locale;

-- name: forget_project_locale
-- Leaves such phones of a project to the default of each type.
delete from relevo.project_locales where project = %(project)s;

-- name: read_timezones
-- Reads the time zones of some phones, in their order: the zone of quiet hours applies to a phone that registered none. Equal phones are looked up once.
select g.zone
  from (select relevo.zone_of(i.timezone, i.quiet, i.owner_quiet, i.project) as zone, array_agg(u.place) as places
          from unnest(%(installations)s::uuid[]) with ordinality as u(installation_id, place)
          left join lateral (select i.timezone, i.quiet, i.owner_quiet, i.project from relevo.device_installations i
                              where i.installation_id = u.installation_id offset 0) i on true
         group by i.timezone, i.quiet, i.owner_quiet, i.project) g
  cross join lateral unnest(g.places) as p(place)
 order by p.place;
