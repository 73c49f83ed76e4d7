-- Shadow mode: everything but the request to the push service. The switch is a row of the database, so that a worker that was started by mistake
-- sends nothing either; `project` is the app's own name of it, empty for all projects.

-- name: begin_shadow
-- Begins shadow mode for a project, or all; one that lasts stays as it is, and nothing is returned.
insert into relevo.shadow_modes as m (project, since, set_by) values (%(project)s, relevo.now(%(now)s), %(set_by)s)
on conflict (project) do update set since = excluded.since, until = null, set_by = excluded.set_by where m.until is not null
returning since;

-- name: end_shadow
-- Ends shadow mode for a project, or all; returns since when it lasted, nothing if it did not.
update relevo.shadow_modes set until = greatest(relevo.now(%(now)s), since), set_by = %(set_by)s
 where project = %(project)s and until is null
returning since;

-- name: list_shadow
-- Lists the projects in shadow mode, all projects first.
select m.project, m.since, m.set_by from relevo.shadow_modes m where m.until is null order by m.project;

-- name: find_live_claim
-- Returns whether a worker still has deliveries of a project that it claimed before shadow mode began, and may send.
select exists (
  select from relevo.claims c
   where not c.in_shadow and c.cycle = 'dispatch' and c.leased_until > now()
     and exists (select from relevo.notification_deliveries d
                  where d.event_day = c.days[1] and d.id = c.ids[1] and %(project)s in ('', relevo.name_of_project(d.project)))) as is_there;

-- name: count_unfanned
-- Counts, up to a bound, the events that are due and have no deliveries yet: after the end of shadow mode theirs would be sent.
select count(*)::int as events from (select from relevo.notification_events e
  where e.state in ('waiting', 'fanning') and e.scheduled_at <= relevo.now(%(now)s)
    and (%(project)s = '' or e.project is null or e.project = %(project)s) limit %(most)s) x;

-- name: count_later
-- Counts, up to a bound, the deliveries of a project that fall due later: after the end of shadow mode they are sent.
select coalesce(sum(x.n), 0)::int as deliveries
  from (select cardinality(c.ids) as n from relevo.due_chunks c
         where c.due_at > relevo.now(%(now)s) and %(project)s in ('', relevo.name_of_project(c.project)) limit %(most)s) x;

-- name: was_live
-- Returns whether a worker is alive, and whether pushes of any project were sent in the last days.
select exists (select from relevo.workers w where 'dispatch' = any (w.cycles) and relevo.is_alive(w)) as works,
       exists (select from relevo.push_minutes m where m.sent > 0) or exists (select from relevo.push_tallies t where t.sent > 0) as has_sent;

-- name: add_sends
-- Keeps what another system sent, each with the phone that its token belongs to; the token itself is not kept.
insert into relevo.shadow_sends (sent_at, installation_id, owner, project, event_type, event_key, title, send_id)
select u.sent_at, coalesce(u.installation_id, p.installation_id), u.owner, u.project, u.type, u.key, u.title, u.send_id
  from unnest(%(sent_ats)s::timestamptz[], %(installation_ids)s::uuid[], %(tokens)s::text[], %(owners)s::text[], %(projects)s::text[], %(types)s::text[],
              %(keys)s::text[], %(titles)s::text[], %(ids)s::text[])
         as u(sent_at, installation_id, token, owner, project, type, key, title, send_id)
  left join lateral (select i.installation_id from relevo.device_installations i
                      where i.token = any (array[u.token, lower(u.token)]) and (u.project is null or i.project = u.project) limit 1) p on true
on conflict do nothing;

-- name: give_time
-- Gives the statements of this transaction ten minutes: a report reads all that was sent.
select set_config('statement_timeout', '600000', true);

-- name: describe_sends
-- Tells what the sends of another system name: how many there are, of how many the phone, key, title and type is known, and the first and last time.
select count(*)::int as sends, count(s.installation_id)::int as phones, count(s.event_key)::int as keys, count(s.title)::int as titles,
       count(s.event_type)::int as types, min(s.sent_at) as first, max(s.sent_at) as last
  from relevo.shadow_sends s
 where (%(project)s::text is null or s.project is null or s.project = %(project)s) and s.sent_at >= coalesce(%(since)s::timestamptz, '-infinity')
   and s.sent_at <= coalesce(%(until)s::timestamptz, 'infinity');

-- name: compare_shadow
-- Compares what shadow mode kept from being sent with what another system sent; returns the first differences of each kind, each with how many there are.
with found as materialized (
  select c.* from relevo.compare_shadow(%(project)s, %(since)s, %(until)s, %(tolerance_s)s * interval '1 second', %(window_s)s * interval '1 second',
                                        %(by_phone)s, %(by_key)s, %(with_type)s) c
), counted as (
  select f.*, count(*) over (partition by f.kind)::int as total,
         row_number() over (partition by f.kind order by coalesce(f.sent_at, f.due_at), f.owner, f.installation_id, f.event_key, f.title)::int as n
    from found f
)
select * from counted c where c.n <= case when c.kind = 'same' then 1 else greatest(%(limit)s::int, 1) end order by c.kind, c.n;

-- name: find_missing
-- Finds the event that another system's send was about, if the app enqueued it, and the phone to ask about: its own, or its owner's newest.
select coalesce((select i.installation_id from relevo.device_installations i where i.installation_id = %(installation_id)s::uuid),
                (select i.installation_id from relevo.device_installations i
                  where %(installation_id)s::uuid is null and i.owner = %(owner)s and (%(project)s::text is null or i.project = %(project)s)
                  order by i.registered_at desc limit 1)) as installation_id,
       (select e.id from relevo.notification_events e
         where case when %(by_key)s then e.event_key = %(event_key)s else lower(btrim(e.title)) = lower(btrim(%(title)s)) end
           and (%(event_type)s::text is null or e.event_type = %(event_type)s)
           and (%(by_key)s or e.scheduled_at between %(sent_at)s::timestamptz - %(window_s)s * interval '1 second'
                                                 and %(sent_at)s::timestamptz + %(window_s)s * interval '1 second')
         order by e.id desc limit 1) as event_id;
