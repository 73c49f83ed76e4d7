-- name: list_installations
-- Lists installations, newest first, with what they asked for, those that stand for a webhook of news only by their id; a token shows its first letters and a mark by which two can be told apart.
select i.installation_id, i.seq, i.owner,
       relevo.shown_token(i.provider, i.part, i.token) as token, i.token_version, i.project, i.platform, i.registered_at,
       relevo.may_receive(i) as receives, relevo.why_not_allowed(i) as why_not,
       (select count(*)::int from relevo.notification_preferences p where p.installation_id = i.installation_id and p.enabled) as preferences
  from relevo.device_installations i
 where (%(project)s::text is null or i.project = %(project)s)
   and (%(token)s::text is null or i.token = %(token)s)
   and (%(owner)s::text is null or i.owner = %(owner)s)
   and (%(installation_id)s::uuid is null and not i.for_news or i.installation_id = %(installation_id)s)
 order by i.seq desc
 limit %(limit)s;

-- name: list_phones
-- Lists given installations, newest first, with their quiet hours; of a token its first letters and a mark by which two can be told apart.
select i.installation_id, i.owner, i.provider, i.project, i.platform, i.locale, i.timezone, i.permission, i.push_capable, i.active, i.opt_outs, i.registered_at,
       i.updated_at, i.invalidated_at, i.handled_before, i.for_news, i.token_version,
       relevo.shown_token(i.provider, i.part, i.token) as token,
       relevo.may_receive(i) as receives, relevo.why_not_allowed(i) as why_not, now() as now,
       array(select w #>> '{}' from jsonb_array_elements(relevo.shown_windows(q.windows)) w) as quiet_windows, q.zone as quiet_zone, q.hours_of as quiet_of,
       relevo.end_of_quiet(q.windows, q.zone, now()) as quiet_until
  from relevo.device_installations i
  left join lateral relevo.quiet_of(i.quiet, i.owner_quiet, i.project, i.timezone) q on true
 where i.installation_id = any (%(installations)s::uuid[])
 order by i.seq desc;

-- name: list_preferences_of_phones
-- Lists what some installations ask for.
select p.installation_id, p.name, p.enabled, p.rubro_prefix, p.tipo, p.region, p.monto_min, p.monto_max, p.moneda, p.keywords, p.topics, coalesce(p.delivery, 'now') as delivery, p.updated_at
  from unnest(%(installations)s::uuid[]) as i(installation_id)
  join relevo.notification_preferences p on p.installation_id = i.installation_id
 order by p.installation_id, p.name
 limit %(limit)s;

-- name: list_history
-- Lists the deliveries to some installations, newest first, before a given one if asked, with what they said; of an owner those that were made for them.
select x.id, x.event_day, x.installation_id, x.event_id, x.event_type, x.status, x.attempt_count, x.created_at, x.last_attempt_at, x.completed_at,
       x.last_error_code, left(coalesce(nullif(e.title, ''), e.body), 200) as title,
       case when e.title <> '' then left(e.body, 200) end as body
  from unnest(%(installations)s::uuid[]) as i(installation_id)
  cross join lateral (select d.id, d.event_day, d.installation_id, d.notification_event_id as event_id, d.event_type, d.status, d.attempt_count,
                             d.created_at, d.last_attempt_at, d.completed_at, d.last_error_code
                        from relevo.notification_deliveries d
                       where d.installation_id = i.installation_id and d.id < coalesce(%(before)s::bigint, 9223372036854775807)
                         and (%(owner)s::text is null
                              or d.inbox_id = any (array(select b.id from relevo.inboxes b where b.owner = %(owner)s))
                              or d.inbox_id is null and d.created_at >= (select coalesce(h.owner_since, '-infinity') from relevo.device_installations h
                                                                          where h.installation_id = i.installation_id))
                       order by d.id desc
                       limit %(limit)s) x
  left join lateral (select e.title, e.body from relevo.notification_events e where e.id = x.event_id) e on true
 order by x.id desc
 limit %(limit)s;

-- name: list_changes_since
-- Returns of some installations what was registered, disabled, changed or given to its owner after an event had begun to go out, and when.
select i.installation_id, e.audience, e.fanout_started_at as went_out_at,
       case when i.registered_at > e.fanout_started_at then i.registered_at end as registered_at,
       case when i.invalidated_at > e.fanout_started_at then i.invalidated_at end as disabled_at,
       case when i.updated_at > e.fanout_started_at then i.updated_at end as changed_at,
       case when i.owner_since > e.fanout_started_at then i.owner_since end as owner_since,
       (select max(p.updated_at) from relevo.notification_preferences p
         where p.installation_id = i.installation_id and p.updated_at > e.fanout_started_at) as preferences_at
  from relevo.notification_events e
  join relevo.device_installations i on i.installation_id = any (%(installations)s::uuid[])
 where e.id = %(event_id)s and e.fanout_started_at is not null;

-- name: list_phones_of_owner
-- Lists the installations of an owner, newest first.
select i.installation_id from relevo.device_installations i where i.owner = %(owner)s order by i.seq desc limit %(limit)s;

-- name: list_events_for
-- Lists the latest events that are for everyone, for whoever matches, or for some phones or their owners, out of five hundred.
select e.id, left(e.title, 200) as title, left(e.body, 200) as body, e.created_at
  from (select e.id, e.event_type, e.title, e.body, e.created_at, e.audience from relevo.notification_events e order by e.id desc limit 500) e
 where e.event_type <> 'relevo.news'
   and (e.audience <> 'installations'
        or exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = any (%(installations)s::uuid[]))
        or exists (select from relevo.event_owners o where o.event_id = e.id
                                                      and o.owner in (select i.owner from relevo.device_installations i where i.installation_id = any (%(installations)s::uuid[])))
        or e.event_type = 'relevo.digest'
           and exists (select from relevo.device_installations i join relevo.digest_contents c on c.event_id = e.id and c.seq = i.seq where i.installation_id = any (%(installations)s::uuid[])))
 order by e.id desc
 limit %(limit)s;

-- name: list_owners
-- Lists owners by their names from a given one on, that one left out if asked, along their index, with a bounded number of their phones counted.
with recursive who as (
  (select i.owner, 1 as n from relevo.device_installations i
    where i.owner is not null and i.owner >= %(first)s and (i.owner > %(first)s or not %(behind)s) order by i.owner limit 1)
  union all
  select f.owner, w.n + 1
    from who w
    cross join lateral (select i.owner from relevo.device_installations i where i.owner > w.owner order by i.owner limit 1) f
   where w.n < %(limit)s
)
select w.owner, p.phones, p.receiving
  from who w
  cross join lateral (select count(*)::int as phones, count(*) filter (where relevo.may_receive(x))::int as receiving
                        from (select i.* from relevo.device_installations i where i.owner = w.owner limit %(most)s) x) p
 order by w.n;

-- name: list_owners_of
-- Lists the owners of given installations, those without one left out.
select i.installation_id, i.owner from relevo.device_installations i
 where i.installation_id = any (%(installations)s::uuid[]) and i.owner is not null;

-- name: find_phone
-- Finds an installation by its id or its push token.
select i.installation_id, i.owner, i.project from relevo.device_installations i
 where i.installation_id = %(installation_id)s::uuid
union
select i.installation_id, i.owner, i.project from relevo.device_installations i where i.token = %(token)s;

-- name: find_owner
-- Returns whether an owner has phones, or events of their own.
select %(owner)s::text as owner
 where exists (select from relevo.device_installations i where i.owner = %(owner)s)
    or exists (select from relevo.event_owners o where o.owner = %(owner)s);

-- name: list_unknown_installations
-- Lists those of some installations that are not registered.
select u.installation_id from unnest(%(installations)s::uuid[]) as u(installation_id)
 where not exists (select from relevo.device_installations i where i.installation_id = u.installation_id) order by u.installation_id;

-- name: list_unknown_owners
-- Lists those of some owners that no installation has, in their order; each is looked up by the index.
select o.owner
  from unnest(%(owners)s::text[]) with ordinality as o(owner, place)
  left join lateral (select 1 as one from relevo.device_installations i where i.owner = o.owner limit 1) i on true
 where i.one is null
 order by o.place;

-- name: list_named_phones
-- Lists the installations that an event names.
select a.installation_id from relevo.event_audience a where a.event_id = %(event_id)s order by a.installation_id limit %(limit)s;

-- name: count_left_out
-- Counts, of a bounded number of phones that are meant (the named ones, those of named owners, or the newest of all), those that may not get a
-- push, or opted out of its category, by the reason; those that may have none.
with meant as materialized (
  (select i from relevo.device_installations i where %(everyone)s and not i.for_news and (%(project)s::text is null or i.project = %(project)s) order by i.seq desc limit %(most)s)
  union all
  (select n.i from unnest(%(installations)s::uuid[]) as u(id)
    cross join lateral (select i from relevo.device_installations i where i.installation_id = u.id and (%(project)s::text is null or i.project = %(project)s) offset 0) n
   limit %(most)s)
  union all
  (select n.i from unnest(%(owners)s::text[]) as u(owner)
    cross join lateral (select i from relevo.device_installations i where i.owner = u.owner
                            and i.project = coalesce(%(project)s::text, (select relevo.project_of_owners()), i.project) order by i.seq desc limit %(most)s) n
   limit %(most)s)
)
select case when not relevo.may_receive(m.i) then relevo.why_not_allowed(m.i) 
            else relevo.unwanted((m.i).opt_outs, (m.i).refused, (m.i).accepted, %(category)s::text, relevo.category_rule(%(category)s::text)) end as reason,
       count(*)::int as phones
  from meant m
 group by 1
 order by 2 desc, 1
 limit 20;
