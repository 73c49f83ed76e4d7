-- name: list_due_lanes
-- Finds the lanes that have something new, which still have something of those asked for again, and which come next along the queue's index;
-- when the first thing of each falls due and may be sent; and what the next look has to know. Nothing once dispatch is paused.
select l.project, l.lane, l.due_at, l.wait_s, l.troubled, l.numbered, l.oldest_xid, l.next_xid, l.walked, l.last_project, l.last_lane, l.in_shadow
  from relevo.due_lanes(
    given_at => %(now)s, after_id => %(after_id)s, most_new => %(most_new)s, again_projects => %(again_projects)s::text[],
    again_lanes => %(again_lanes)s::text[], again_since => %(again_since)s::timestamptz[], after_project => %(after_project)s,
    after_lane => %(after_lane)s, most => %(limit)s) l;

-- name: list_due_receipts
-- Finds the next projects that have receipts to ask for, by skipping along their index, and when the first one falls due and may be asked for.
with recursive way as ( -- of each project, the one that falls due first of those that nobody has claimed
  (select 1 as place, w.project, w.look_at from relevo.awaited_receipts w where w.project > %(after)s and w.claim_token is null
    order by w.project, w.look_at, w.id limit 1)
  union all
  select f.place + 1, n.project, n.look_at
    from way f
    cross join lateral (select w.project, w.look_at from relevo.awaited_receipts w
                         where w.project > f.project and w.claim_token is null
                         order by w.project, w.look_at, w.id limit 1) n
), first as materialized (
  select w.place, w.project, w.look_at from way w limit %(limit)s
)
select f.project,
       extract(epoch from greatest(f.look_at, r.receipts_after, '2000-01-01Z') - relevo.now(%(now)s))::float8 as due_in_s
  from first f
  left join relevo.projects r on r.project = f.project
 order by f.place;

-- name: list_stopped_projects
-- Finds projects of which something is due while their breaker is open or their push service asked for a rest; until when (in UTC), and why.
select p.project, s.until at time zone 'UTC' as until, s.reason
  from relevo.projects p
  cross join lateral (
    select case when p.breaker <> 'closed' then p.probe_at else p.rest_until end as until,
           case when p.breaker <> 'closed' then p.breaker_reason else 'its push service asked for a rest' end as reason) s
 where (p.breaker <> 'closed' or p.rest_until is not null)
   and s.until > relevo.now(%(now)s)
   and exists (select from relevo.due_chunks q
                where q.project = p.project and q.lane in ('urgent', 'bulk') and q.due_at <= relevo.now(%(now)s))
 order by p.project
 limit %(limit)s;

-- name: count_due
-- Counts what is due in one lane from a time on, but no further than asked for.
select least(coalesce(sum(x.deliveries), 0), %(limit)s)::int
  from (select cardinality(q.ids) as deliveries from relevo.due_chunks q
         where q.project = %(project)s and q.lane = %(lane)s and q.due_at <= relevo.now(%(now)s)
           and q.due_at >= coalesce(%(since)s::timestamptz, '-infinity')
         order by q.due_at, q.id
         limit %(limit)s) x;

-- name: add_project
-- Makes a project's row; one that is there stays as it is.
insert into relevo.projects (project, filled_at, urgent_tokens, bulk_tokens, rate_share)
values (%(project)s, relevo.now(%(now)s), %(chunk)s, %(chunk)s, %(share)s)
on conflict (project) do nothing;

-- name: lock_project
-- Locks a project's row, so that the fleet decides about it one after the other, and returns the time; waits for it no longer than given.
select l.* from relevo.lock_project(%(project)s, %(now)s, %(wait_ms)s) l;

-- name: save_project
-- Writes what was decided about a locked project.
update relevo.projects
   set urgent_tokens = %(urgent_tokens)s, bulk_tokens = %(bulk_tokens)s, filled_at = %(filled_at)s, rate_share = %(rate_share)s,
       rest_until = %(rest_until)s, breaker = %(breaker)s, breaker_reason = %(breaker_reason)s, breaker_by = %(breaker_by)s,
       breaker_since = %(breaker_since)s, probe_at = %(probe_at)s, trips = %(trips)s, failures = %(failures)s,
       pruning_stopped_at = %(pruning_stopped_at)s
 where project = %(project)s;

-- name: lease_connections
-- Returns this worker's fair share of a project's connections, as far as others leave any, and leases it; nothing if they leave none. While more
-- requests may be under way than the share allows, the lease stays as it is.
with fair as materialized (
  select least(
           greatest(1, %(most)s / greatest(1, (
             select count(*)::int from relevo.workers w
              where 'dispatch' = any (w.cycles) and relevo.is_alive(w)))),
           %(most)s - coalesce((
             select sum(o.connections)::int from relevo.push_connections o
              where o.project = %(project)s and o.worker_id <> %(worker_id)s
                and o.leased_until > relevo.now(%(now)s)), 0)) as share
), leased as (
  insert into relevo.push_connections as c (project, worker_id, connections, leased_until)
  select %(project)s, %(worker_id)s, f.share, relevo.now(%(now)s) + %(lease_ms)s * interval '1 millisecond'
    from fair f
   where f.share >= greatest(1, %(under_way)s::int)
  on conflict (project, worker_id) do update set connections = excluded.connections, leased_until = excluded.leased_until
)
select f.share from fair f where f.share >= 1;

-- name: renew_connections
-- Extends this worker's leases of connections that have not run out; returns of each that stands whether it was extended, or somebody has it locked.
with free as materialized (
  select c.project from relevo.push_connections c
   where c.worker_id = %(worker_id)s and c.project = any (%(projects)s::text[]) and c.leased_until > now()
     for no key update skip locked
), renewed as (
  update relevo.push_connections c set leased_until = now() + %(lease_ms)s * interval '1 millisecond'
    from free f
   where c.project = f.project and c.worker_id = %(worker_id)s
  returning c.project
)
select c.project, exists (select from renewed r where r.project = c.project)
  from relevo.push_connections c
 where c.worker_id = %(worker_id)s and c.project = any (%(projects)s::text[]) and c.leased_until > now();

-- name: lease_ahead
-- Takes this worker's fair share of a project's connections ahead of what may come for it, and returns which event types others compose;
-- waits for nobody.
select l.* from relevo.lease_ahead(%(project)s, %(worker_id)s, %(most)s, %(lease_ms)s) l;

-- name: drop_connections
-- Gives this worker's connections of some projects back; of one that somebody has locked, their lease ends by itself.
delete from relevo.push_connections c
 using (select p.project, p.worker_id from unnest(%(projects)s::text[]) as u(project)
         cross join lateral (select p.project, p.worker_id from relevo.push_connections p
                              where p.project = u.project and p.worker_id = %(worker_id)s for update skip locked) p) d
 where c.project = d.project and c.worker_id = d.worker_id;

-- name: read_credential_answers
-- Returns which installations of a locked project met a credential fault lately, oldest first.
select c.since, c.installations, c.faulty from relevo.credential_answers c
 where c.project = %(project)s and c.answered_by = %(answered_by)s;

-- name: save_credential_answers
-- Writes down which installations of a locked project met a credential fault lately.
insert into relevo.credential_answers (project, answered_by, since, installations, faulty)
values (%(project)s, %(answered_by)s, %(since)s, %(installations)s::uuid[], %(faulty)s::boolean[])
on conflict (project, answered_by) do update
   set since = excluded.since, installations = excluded.installations, faulty = excluded.faulty;

-- name: forget_credential_answers
-- Forgets who met a credential fault, after a while without.
delete from relevo.credential_answers where project = %(project)s and answered_by = %(answered_by)s;

-- name: excuse_credential_answers
-- Takes the faults that were met for the phones' own, since the breaker closes: from now on they tell nothing of the project.
update relevo.credential_answers c
   set faulty = array(select case when f.faulty is false then false end from unnest(c.faulty) with ordinality as f(faulty, place) order by f.place)
 where c.project = %(project)s;

-- name: find_another_installation
-- Returns whether a project has an installation that may receive beside the given ones.
select exists (select from relevo.device_installations i
                where i.project in (%(project)s, split_part(%(project)s, '::', 2), substr(%(project)s, strpos(%(project)s, '::') + 2))
                  and relevo.sending_project(i.provider, i.project, i.part) = %(project)s
                  and i.installation_id <> all (%(installations)s::uuid[]) and relevo.may_receive(i));

-- name: list_witnesses
-- Returns the owner of each of some installations of a project, and whether the push service took a push for its present token before.
select i.installation_id, i.owner, relevo.was_taken(i.installation_id, %(project)s, %(answered_by)s = 'receipt')
  from unnest(%(installations)s::uuid[]) as u(id)
  cross join lateral (select i.installation_id, i.owner from relevo.device_installations i where i.installation_id = u.id offset 0) i;

-- name: was_taken_lately
-- Returns whether the push service took a push of a project, or by its receipts confirmed one, within so many milliseconds; and in the last days.
select exists (select from relevo.push_tallies t
                where t.project = %(project)s and t.at > relevo.now(%(now)s) - %(window_ms)s * interval '1 millisecond'
                  and case %(answered_by)s when 'receipt' then t.confirmed else t.sent end > 0)
       or m.minute > relevo.now(%(now)s) - %(window_ms)s * interval '1 millisecond' as lately,
       exists (select from relevo.push_tallies t
                where t.project = %(project)s and case %(answered_by)s when 'receipt' then t.confirmed else t.sent end > 0)
       or m.minute is not null as ever
  from (select max(m.minute) as minute from relevo.push_minutes m
         where m.project = %(project)s and case %(answered_by)s when 'receipt' then m.confirmed else m.sent end > 0) m;

-- name: has_owners
-- Returns whether somebody owns a phone of a project.
select relevo.has_owners(%(project)s);

-- name: note_refusal
-- Notes that a message of an event was refused alone, and returns what was known of the event before: nothing, if it is the first.
with before as materialized (
  select r.first_refused_at, r.taken_since, r.own_taken
    from relevo.refused_events r where r.project = %(project)s and r.event_id = %(event_id)s
), noted as (
  insert into relevo.refused_events (project, event_id, first_refused_at, last_refused_at)
  values (%(project)s, %(event_id)s, relevo.now(%(now)s), relevo.now(%(now)s))
  on conflict (project, event_id) do update set last_refused_at = excluded.last_refused_at, taken_since = false
)
select b.first_refused_at, b.taken_since, b.own_taken from before b;

-- name: note_taken
-- Notes for the refused events of a project that messages of some events were taken since then.
update relevo.refused_events r
   set taken_since = true, own_taken = r.own_taken or r.event_id = any (%(events)s::bigint[])
 where r.project = %(project)s and (not r.taken_since or (r.event_id = any (%(events)s::bigint[]) and not r.own_taken));

-- name: pause_receipts
-- Lets a project's receipts rest after a request that failed, twice as long each time, and never shorter than the service asks for.
update relevo.projects p
   set receipt_failures = p.receipt_failures + 1,
       receipts_after = relevo.now(%(now)s)
         + relevo.retry_delay(p.receipt_failures + 1, %(base_ms)s::bigint, %(max_ms)s::bigint, 0, %(floor_ms)s::bigint, 0)
 where p.project = %(project)s
returning (extract(epoch from p.receipts_after - relevo.now(%(now)s)) * 1000)::bigint as pause_ms;

-- name: resume_receipts
-- Notes that a project's receipts are told again.
update relevo.projects set receipt_failures = 0, receipts_after = null
 where project = %(project)s and receipt_failures > 0;

-- name: tell_incident
-- Writes down what happened to a project's sending.
insert into relevo.project_incidents (project, at, what, detail)
values (%(project)s, relevo.now(%(now)s), %(what)s, %(detail)s);

-- name: sum_tallies
-- Sums up how a project's pushes fared within a window, or since an operator released it; of gone phones, also how many owners had them, where
-- those were noted.
with recent as materialized (
  select t.sent, t.answers, t.unregistered, t.gone from relevo.push_tallies t
   where t.project = %(project)s and t.at > relevo.now(%(now)s) - %(window_ms)s * interval '1 millisecond'
     and t.at > coalesce((select p.judged_since from relevo.projects p where p.project = %(project)s), '-infinity')
)
select coalesce(sum(r.sent), 0)::bigint, coalesce(sum(r.answers), 0)::bigint, coalesce(sum(r.unregistered), 0)::bigint,
       (coalesce(sum(r.unregistered) filter (where r.gone is null), 0)
        + (select count(distinct g.owner) from recent n cross join unnest(n.gone) as g(owner)))::bigint as owners
  from recent r;

-- name: move_tokens
-- Writes down which project each token belongs to, as the push service told, and returns the tokens whose phones are there now, and whether they
-- moved only now; a phone that somebody else has locked is left to the next answer.
-- A push service moves no phone across a wall: its owner there is somebody else, unless equal names are one person, and a token of either project
-- says whose phones they are. Such a phone stays where it was registered; its pushes are sorted each time.
with moved as (
  update relevo.device_installations i
     set project = x.project, updated_at = relevo.now(%(now)s)
    from (select n.installation_id, m.project
            from unnest(%(tokens)s::text[], %(projects)s::text[]) as m(token, project)
            join relevo.device_installations n on n.token = m.token and n.provider = 'expo' and n.project <> m.project
           where (n.owner is null or relevo.project_of_owners() is null)
             and not exists (select from relevo.api_tokens t where t.project in (n.project, m.project) and t.revoked_at is null)
           order by n.installation_id
             for no key update of n skip locked) x
   where i.installation_id = x.installation_id
  returning i.token, i.project
)
select moved.token, moved.project, true as has_moved from moved
union all
select n.token, n.project, false
  from unnest(%(tokens)s::text[], %(projects)s::text[]) as m(token, project)
  join relevo.device_installations n on n.token = m.token and n.provider = 'expo' and n.project = m.project;
