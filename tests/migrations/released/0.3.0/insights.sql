-- name: list_runs
-- Lists runs, newest first, by cycle and outcome if asked.
select r.id, r.cycle, r.source, r.slot_at, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts,
       r.error_message, extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds
  from relevo.worker_runs r
 where (%(cycle)s::text is null or r.cycle = %(cycle)s)
   and (%(outcome)s::text is null or r.outcome = %(outcome)s)
 order by r.started_at desc, r.id desc
 limit %(limit)s;

-- name: list_workers
-- Lists the workers that live, and those that ended within the last day.
select w.worker_id, w.role, w.cycles, w.version, w.hostname, w.pid, w.wakeups, w.started_at, w.last_seen_at, w.hung, w.http, w.rests_because,
       extract(epoch from now() - w.last_seen_at)::float8 as silent_s,
       w.last_seen_at + w.lease_ms / 2 * interval '1 millisecond' < now() as is_late,
       case when w.stopped_at is not null then 'stopped'
            when w.lost_at is not null then 'lost'
            when w.last_seen_at + w.lease_ms * interval '1 millisecond' < now() then 'silent'
            when w.stopping_at is not null then 'stopping'
            else 'alive' end as state
  from relevo.workers w
 where coalesce(w.stopped_at, w.lost_at) is null or coalesce(w.stopped_at, w.lost_at) > now() - interval '1 day'
 order by (coalesce(w.stopped_at, w.lost_at) is null) desc, w.started_at desc
 limit %(limit)s;

-- name: list_cycles
-- Lists the cycles with their last round, last run, pause switch and holder.
select s.cycle, s.source, s.rounds, s.idle_rounds, s.wakeups_skipped, s.slots_skipped, s.asleep, s.last_round_at, s.last_ok_at, s.failures, s.round_gap_s,
       extract(epoch from now() - s.last_round_at)::float8 as quiet_s, extract(epoch from now() - s.last_ok_at)::float8 as since_ok_s,
       pause.paused_at, pause.paused_reason, pause.source as paused_source,
       l.worker_id as held_by, last_run.outcome as last_outcome, last_run.started_at as last_run_at, last_run.error_message
  from relevo.cycle_state s
  left join lateral (select p.paused_at, p.paused_reason, p.source
                       from relevo.cycle_state p
                      where p.cycle = s.cycle and p.source in ('', s.source) and p.paused_at is not null
                      order by p.source limit 1) pause on true
  left join relevo.cycle_leases l on l.cycle = s.cycle and l.source = s.source and l.leased_until > now()
  left join lateral (select r.outcome, r.started_at, r.error_message
                       from relevo.worker_runs r
                      where (r.cycle, r.source) >= (s.cycle, s.source) and (r.cycle, r.source) <= (s.cycle, s.source) and r.outcome <> 'skipped' -- see list_durations
                      order by r.cycle, r.source, r.started_at desc, r.id desc limit 1) last_run on true
 order by s.cycle, s.source;

-- name: sum_claims
-- Sums up the claims: how many stand, how many deliveries they hold, how many have expired and wait for a reaper.
select count(*)::int as claims, coalesce(sum(cardinality(c.ids)), 0)::int as deliveries,
       count(*) filter (where c.leased_until <= now())::int as expired
  from relevo.claims c;

-- name: read_health
-- Tells the database's time, how long deliveries have waited in expired claims, and what waits for fan-out and receipts.
select now() as now,
       (select extract(epoch from now() - min(c.leased_until))::float8
          from relevo.claims c where c.leased_until <= now()) as oldest_expired_s,
       (select count(*)::int from (select from relevo.notification_events e
                                    where e.state in ('waiting', 'fanning') and e.scheduled_at <= now() limit %(most)s) x) as events_waiting,
       exists (select from relevo.awaited_receipts w where w.look_at <= now()) as receipts_due;

-- name: list_troubles
-- Lists the things that are left alone after an error while the rest goes on; one of which nothing was heard since its next try is not told.
select t.kind, t.name, t.error, t.failures, t.first_at, t.last_at, t.retry_at
  from relevo.troubles t
 where t.retry_at > now() - interval '15 minutes'
 order by t.last_at desc, t.kind, t.name
 limit %(limit)s;

-- name: list_due
-- Lists what is due now per project and lane, news left out: how much, up to a bound, and since when the oldest.
with recursive lane as (
  (select q.project, q.lane from relevo.due_chunks q order by q.project, q.lane limit 1)
  union all
  select n.project, n.lane
    from lane l
    cross join lateral (select q.project, q.lane from relevo.due_chunks q
                         where (q.project, q.lane) > (l.project, l.lane)
                         order by q.project, q.lane limit 1) n
)
select l.project, l.lane, x.due, extract(epoch from now() - x.oldest_at)::float8 as oldest_s
  from lane l
  cross join lateral (select least(coalesce(sum(y.deliveries), 0), %(most)s)::int as due, min(y.due_at) as oldest_at
                        from (select q.due_at, cardinality(q.ids) as deliveries from relevo.due_chunks q
                               where q.project = l.project and q.lane = l.lane and q.due_at <= now()
                               order by q.due_at, q.id limit %(most)s) y) x
 where x.due > 0 and not relevo.is_news_project(l.project)
 order by x.oldest_at
 limit %(limit)s;

-- name: list_events
-- Lists events, newest first, behind a given one, news only if asked for, by type and state if asked, with how many deliveries are in which status.
select e.id, e.event_type, e.event_key, e.state, e.title, e.body,
       case when e.audience = 'installations' and exists (select from relevo.event_owners o where o.event_id = e.id) then 'owners' else e.audience end as audience,
       e.lane, e.created_at, e.scheduled_at, e.deadline_at,
       e.targets_selected, e.deliveries_created, e.end_reason, coalesce(p.deliveries, '{}') as deliveries
  from (select e.*
          from relevo.notification_events e
         where (%(event_type)s::text is null and e.event_type <> 'relevo.news' or e.event_type = %(event_type)s)
           and (%(state)s::text is null or e.state = %(state)s)
           and (%(before)s::bigint is null or e.id < %(before)s)
         order by e.id desc
         limit %(limit)s) e
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = e.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 order by e.id desc;

-- name: read_story
-- Tells the saga of one event as moments in time: its item, its enqueueing, its fan-out, its end.
select s.at, s.what, s.detail
  from relevo.notification_events e
  left join relevo.licitaciones l on l.id = e.licitacion_id
  left join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
  left join relevo.held_events h on h.event_id = e.id
  left join relevo.event_repeats t on t.event_id = e.id
  cross join lateral (select case when e.event_type = 'new_licitacion' then 'tender' else 'item' end) as i(word)
  cross join lateral (values
    (l.publicada_at, concat(i.word, ' published'), concat_ws(', ', l.external_id, l.organismo)),
    (r.claimed_at, concat(i.word, ' first seen'), concat('by ', r.source)),
    (e.created_at, 'event enqueued', concat_ws(' ', e.event_type, e.event_key)),
    (case when e.scheduled_at > e.created_at then e.scheduled_at end, 'scheduled', null),
    (e.fanout_started_at, 'fan-out began', concat('for installations registered until then, as of ', e.event_day)),
    (e.fanout_finished_at, 'fan-out finished', concat_ws(': ', concat(e.targets_selected, case e.targets_selected when 1 then ' phone, ' else ' phones, ' end,
                                                                              e.deliveries_created, case e.deliveries_created when 1 then ' delivery' else ' deliveries' end),
                                                           case when e.ended_at is null then e.end_reason end)),
    (case when e.fanout_failures is not null then e.updated_at end, 'fan-out failed',
     concat(case e.fanout_failures when 1 then 'once' else concat(e.fanout_failures, ' times') end, ': ', e.fanout_error)),
    (h.held_at, 'held by the runaway brake', h.reason),
    (nullif(h.released_at, e.ended_at), 'released', null),
    (t.held_at, 'pushes held by the runaway brake', t.reason),
    (e.first_sent_at, case e.event_type when 'relevo.news' then 'your server took it' else 'first push sent' end, null),
    (e.ended_at, e.state, e.end_reason),
    (e.swept_at, 'open deliveries ended', null),
    (e.deadline_at, 'deadline', null)) as s(at, what, detail)
 where e.id = %(event_id)s and s.at is not null
 order by s.at, s.what;

-- name: list_event_incidents
-- Lists what happened to the sending of an event's projects while it was sent, out of a bounded sample of its deliveries; that dead letters
-- were sent anew, if some were its own. A breaker that opened, and had not closed since it did before, is a probe that failed.
select i.at, case when i.what = 'breaker_opened' and (select b.what from relevo.project_incidents b
                                                      where b.project = i.project and b.at < i.at and b.what in ('breaker_opened', 'breaker_closed')
                                                      order by b.at desc limit 1) = 'breaker_opened'
                  then 'probe_failed' else i.what end as what, concat_ws(': ', i.project, i.detail) as detail
  from relevo.notification_events e
  join relevo.project_incidents i on i.at >= e.fanout_started_at
 where e.id = %(event_id)s
   and i.project in (select x.project from (select d.project from relevo.notification_deliveries d
                                             where d.event_day = e.event_day and d.notification_event_id = e.id limit 1000) x)
   and (i.what <> 'redriven' or e.id = any (i.events))
   and i.at <= (select max(case when x.completed_at is null and x.status <> 'sent' then now() else x.last_attempt_at + interval '1 minute' end)
                  from (select d.status, d.completed_at, d.last_attempt_at from relevo.notification_deliveries d
                         where d.event_day = e.event_day and d.notification_event_id = e.id limit 10000) x)
 order by i.at
 limit 50;

-- name: list_event_errors
-- Lists what went wrong in an event's deliveries, most frequent first, and when the next is tried again, out of a bounded sample.
select x.status, x.last_error_code, count(*)::int as deliveries, min(x.last_error_message) as example,
       case when x.status in ('pending', 'retryable')
            then (select min(q.due_at) from relevo.due_chunks q where q.event_id = %(event_id)s and q.had_error) end as next_attempt_at
  from (select d.id, d.status, d.last_error_code, d.last_error_message -- the first by installation, which is as good as by chance
          from (select d.id, d.status, d.last_error_code, d.last_error_message
                  from relevo.notification_deliveries d
                 where d.event_day = (select e.event_day from relevo.notification_events e where e.id = %(event_id)s)
                   and d.notification_event_id = %(event_id)s
                 order by d.installation_id
                 limit 10000) d
         where d.last_error_code is not null
        union -- and some dead letters, should there be none among those
        select d.id, d.status, d.last_error_code, d.last_error_message
          from (select l.event_day, l.delivery_id from relevo.dead_letters l where l.event_id = %(event_id)s order by l.delivery_id limit 1000) l
          join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
         where d.last_error_code is not null) x
 group by x.status, x.last_error_code
 order by count(*) desc
 limit 10;

-- name: list_event_waits
-- Tells why what is open of an event waits, and until when, per project, out of a bounded number of its chunks and claims.
select x.project, x.lane, sum(x.deliveries)::int as deliveries, min(x.due_at) as next_attempt_at, bool_or(x.claimed) as claimed,
       p.breaker, p.breaker_reason, p.probe_at, p.rest_until,
       x.lane = 'bulk' and exists (select from relevo.event_repeats r where r.event_id = %(event_id)s and r.held_at is not null) as repeats_held
  from (select q.project, q.lane, q.due_at, cardinality(q.ids) as deliveries, false as claimed
          from (select * from relevo.due_chunks q where q.event_id = %(event_id)s limit 10000) q
        union all
        select d.project, d.lane, c.due_at, 1, true
          from (select * from relevo.claims c where %(event_id)s = any (c.events) limit 100) c
          cross join unnest(c.days, c.ids) as u(event_day, id)
          join relevo.notification_deliveries d on d.event_day = u.event_day and d.id = u.id and d.notification_event_id = %(event_id)s) x
  left join relevo.projects p on p.project = x.project
 group by x.project, x.lane, p.project
 order by x.project, x.lane
 limit 50;

-- name: count_event_claimed
-- Counts what of an event is being sent right now, out of a bounded number of claims.
select count(*)::int as claimed
  from (select * from relevo.claims c where %(event_id)s = any (c.events) limit 100) c
  cross join unnest(c.days, c.ids) as u(event_day, id)
  join relevo.notification_deliveries d on d.event_day = u.event_day and d.id = u.id and d.notification_event_id = %(event_id)s;

-- name: list_installations
-- Lists installations, newest first, with what they asked for, those that stand for a webhook of news only by their id; a token shows its first letters and a mark by which two can be told apart.
select i.installation_id, i.seq, i.owner,
       coalesce(substring(i.token from '\[(.{1,4})'), left(i.token, 4)) || '…' || substr(md5(i.token), 1, 4) as token, i.token_version, i.project, i.platform, i.registered_at,
       relevo.may_receive(i) as receives,
       case when i.invalidated_at is not null then i.invalid_reason when not i.active then 'inactive'
            when i.permission <> 'granted' then 'permission ' || i.permission when i.token is null then 'no token'
            when not i.push_capable then 'not push capable' end as why_not,
       (select count(*)::int from relevo.notification_preferences p where p.installation_id = i.installation_id and p.enabled) as preferences
  from relevo.device_installations i
 where (%(project)s::text is null or i.project = %(project)s)
   and (%(token)s::text is null or i.token = %(token)s)
   and (%(owner)s::text is null or i.owner = %(owner)s)
   and (%(installation_id)s::uuid is null and not i.for_news or i.installation_id = %(installation_id)s)
 order by i.seq desc
 limit %(limit)s;

-- name: list_unknown_owners
-- Lists those of some owners that no installation has, in their order; each is looked up by the index.
select o.owner
  from unnest(%(owners)s::text[]) with ordinality as o(owner, place)
  left join lateral (select 1 as one from relevo.device_installations i where i.owner = o.owner limit 1) i on true
 where i.one is null
 order by o.place;

-- name: list_rejects
-- Lists what sources offered and could not be used, newest first.
select r.id, r.source, r.place, r.external_id, r.reason, r.attempts, r.retry_at, r.created_at, r.updated_at
  from relevo.ingest_rejects r
 where r.resolved_at is null and (%(source)s::text is null or r.source = %(source)s)
 order by r.updated_at desc, r.id desc
 limit %(limit)s;

-- name: list_source_names
-- Lists the names of all sources that were asked, or of which something was rejected, along the index of rejects.
with recursive rejecting as (
  (select r.source from relevo.ingest_rejects r order by r.source limit 1)
  union all
  select n.source
    from rejecting p
    cross join lateral (select r.source from relevo.ingest_rejects r where r.source > p.source order by r.source limit 1) n
)
select s.source from relevo.source_state s union select p.source from (select p.source from rejecting p limit 1000) p order by source;

-- name: list_sources
-- Lists the sources with their last answer, and how many of a bounded number of rejects were given up.
select s.source, s.last_outcome, s.last_detail, s.last_asked_at, s.last_ok_at, s.seeded_at, s.problems,
       (select count(*) filter (where x.attempts >= %(given_up_attempts)s)::int
          from (select r.attempts from relevo.ingest_rejects r
                 where r.source = s.source and r.resolved_at is null and r.retry_at is null limit %(most)s) x) as given_up,
       extract(epoch from now() - s.last_ok_at)::float8 as since_ok_s,
       extract(epoch from now() - s.last_news_at)::float8 as since_news_s, s.news_gap_s
  from relevo.source_state s order by s.source;

-- name: list_projects
-- Lists the projects of pushes with what holds them up, since when in all, failed probes included, and how they fared in the last minutes.
select p.project, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.probe_at, p.trips, p.failures, p.filled_at as asked_at,
       case when p.breaker <> 'closed' then coalesce(opened.at, p.breaker_since) end as breaker_since, p.pruning_stopped_at,
       coalesce((select sum(c.connections)::int from relevo.push_connections c where c.project = p.project and c.leased_until > now()), 0) as connections,
       t.sent, t.answers, t.unregistered
  from relevo.projects p
  left join lateral (select min(i.at) as at
                       from relevo.project_incidents i
                      where p.breaker <> 'closed' and i.project = p.project and i.what = 'breaker_opened'
                        and i.at > coalesce((select max(c.at) from relevo.project_incidents c
                                              where c.project = p.project and c.what = 'breaker_closed'), '-infinity')) opened on true
  cross join lateral (select coalesce(sum(t.sent), 0)::bigint as sent, coalesce(sum(t.answers), 0)::bigint as answers,
                             coalesce(sum(t.unregistered), 0)::bigint as unregistered
                        from relevo.push_tallies t where t.project = p.project and t.at > now() - interval '15 minutes') t
 where not relevo.is_news_project(p.project)
 order by p.project
 limit %(limit)s;

-- name: list_failing_events
-- Lists events whose fan-out fails, up to so many, those that failed most often first; of one event, if it is given.
select e.id, e.event_type, e.fanout_failures as failures, e.fanout_error as error, e.fanout_retry_at as retry_at
  from relevo.notification_events e
 where e.fanout_failures is not null and e.state in ('waiting', 'fanning')
   and (%(event_id)s::bigint is null or e.id = %(event_id)s)
 order by e.fanout_failures desc, e.id
 limit %(limit)s;

-- name: list_held
-- Lists what the runaway brake holds: streams with their held events, found by skipping along their index and counted up to a bound, and
-- types whose pushes were repeated too often.
with recursive held as (
  (select h.stream_id from relevo.held_events h where h.released_at is null order by h.stream_id limit 1)
  union all
  select n.stream_id
    from held s
    cross join lateral (select h.stream_id from relevo.held_events h
                         where h.released_at is null and h.stream_id > s.stream_id order by h.stream_id limit 1) n
)
select s.event_type, s.origin, coalesce(s.held_reason, 'it was released, but not to the end') as reason, n.events, false as repeats
  from held
  join relevo.event_streams s on s.id = held.stream_id
  cross join lateral (select count(*)::int as events
                        from (select from relevo.held_events h join relevo.notification_events e on e.id = h.event_id and e.state = 'held'
                               where h.stream_id = s.id and h.released_at is null limit %(limit)s) x) n
 where n.events > 0
union all
select x.event_type, x.origin, min(x.reason), count(*)::int, true
  from (select e.event_type, relevo.event_origin(e) as origin, r.reason
          from relevo.event_repeats r join relevo.notification_events e on e.id = r.event_id and e.ended_at is null
         where r.held_at is not null limit %(limit)s) x
 group by x.event_type, x.origin
 order by 1, 2, 5;

-- name: list_archive
-- Lists the months that left the hot tables, oldest first: how far each is, and what keeps it.
select x.entity, x.month, x.state, x.rows, x.bytes, x.parts,
       (select count(*)::int from relevo.archive_parts p where p.entity = x.entity and p.month = x.month) as parts_uploaded,
       x.retired_at, x.verified_at, x.drop_eligible_at, x.dropped_at, x.mismatches, x.last_error
  from relevo.archive_exports x
 order by x.month, x.entity;

-- name: list_audit
-- Lists what operators did, newest first, before a given one if asked.
select a.id, a.at, a.actor, a.face, a.action, a.target, a.outcome, a.result, a.error_message, a.finished_at
  from relevo.audit_log a
 where (%(before)s::bigint is null or a.id < %(before)s)
   and (%(action)s::text is null or a.action = %(action)s)
 order by a.id desc
 limit %(limit)s;

-- name: find_scheduler
-- Finds a worker that is alive and runs cycles by schedule.
select w.worker_id
  from relevo.workers w
 where w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.role = 'run' and w.cycles <> '{}'
   and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
 limit 1;

-- name: count_dead_letters
-- Counts the pushes that failed for good, up to a bound.
select count(*)::int as dead_letters from (select from relevo.dead_letters l where not relevo.is_news_project(l.project) limit %(most)s) x;

-- name: count_queue
-- Counts all pushes by status without counting them, and what of the open ones is claimed, by claims that live and that have expired.
select now() as now,
       coalesce((select jsonb_object_agg(c.status, c.n)
                   from (select s.status, sum(s.n) as n
                           from (select d.status, d.deliveries as n from relevo.delivery_counts d
                                 union all
                                 select p.status, p.deliveries
                                   from relevo.event_progress_deltas p
                                   left join lateral (select true as is_news from relevo.notification_events e
                                                       where (select exists (select from relevo.news_subscriptions s where s.webhook is not null))
                                                         and e.id = p.event_id and e.event_type = 'relevo.news' offset 0) e on true
                                  where e.is_news is null) s
                          group by s.status having sum(s.n) <> 0) c), '{}') as statuses,
       (select coalesce(sum(cardinality(c.ids)), 0)::int from relevo.claims c where c.cycle <> 'receipt' and c.leased_until > now()) as claimed,
       (select coalesce(sum(cardinality(c.ids)), 0)::int from relevo.claims c where c.cycle <> 'receipt' and c.leased_until <= now()) as expired;

-- name: sum_runs
-- Sums up what all cycles did since they first ran.
select s.cycle, sum(s.rounds)::bigint as rounds, coalesce(jsonb_agg(s.totals) filter (where s.totals <> '{}'), '[]') as totals
  from relevo.cycle_state s
 group by s.cycle
 order by s.cycle;

-- name: read_last_error
-- Reads the last run that failed within a day, out of the last hundred of each cycle.
select r.cycle, r.finished_at, r.error_message
  from (select distinct s.cycle, s.source from relevo.cycle_state s) s
  cross join lateral (select r.cycle, r.finished_at, r.error_message, r.outcome from relevo.worker_runs r
                       where r.cycle = s.cycle and r.source = s.source and r.started_at > now() - interval '1 day'
                       order by r.started_at desc, r.id desc limit 100) r
 where r.outcome = 'failed'
 order by r.finished_at desc nulls last
 limit 1;

-- name: list_event_deliveries
-- Lists deliveries of one event, by installation, after a given one if asked.
select d.id, d.installation_id, d.provider, d.project, d.lane, d.status, d.attempt_count, d.created_at, d.last_attempt_at, d.completed_at,
       d.last_error_code, d.last_error_message,
       coalesce((select jsonb_agg(jsonb_build_object('at', to_char(f.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'attempt', f.attempt,
                                                     'found_by', f.found_by, 'status', f.became, 'error_code', f.error_code,
                                                     'error_message', f.error_message) order by f.n)
                   from relevo.failed_attempts f where f.event_day = d.event_day and f.delivery_id = d.id), '[]') as failed_attempts
  from relevo.notification_deliveries d
 where d.event_day = (select e.event_day from relevo.notification_events e where e.id = %(event_id)s)
   and d.notification_event_id = %(event_id)s
   and d.installation_id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
 order by d.installation_id
 limit %(limit)s;

-- name: describe_sources
-- Lists the sources with how far they were read, their last answer, and how much of what they offered could not be used.
select s.source, left(s.cursor::text, 500) as cursor, s.last_outcome, s.last_detail, s.last_asked_at, s.last_ok_at, s.seeded_at, s.problems,
       extract(epoch from now() - s.last_ok_at)::float8 as since_ok_s, extract(epoch from now() - s.last_news_at)::float8 as since_news_s,
       r.rejects, r.given_up,
       -- its cursor in short: of what holds several things how many, and the first
       (select coalesce(jsonb_object_agg(left(c.key, 100), case jsonb_typeof(c.value)
                 when 'object' then jsonb_build_object('entries', (select count(*) from jsonb_object_keys(c.value)),
                   'first', (select jsonb_agg(left(k.key, 100)) from (select k.key from jsonb_object_keys(c.value) as k(key) limit 3) k))
                 when 'array' then jsonb_build_object('entries', jsonb_array_length(c.value),
                   'first', (select jsonb_agg(left(e.value #>> '{}', 100)) from (select e.value from jsonb_array_elements(c.value) e limit 3) e))
                 else to_jsonb(left(c.value #>> '{}', 300)) end), '{}')
          from (select c.key, c.value from jsonb_each(s.cursor) c limit 20) c) as read_up_to
  from relevo.source_state s
  cross join lateral (select count(*)::int as rejects,
                             count(*) filter (where x.retry_at is null and x.attempts >= %(given_up_attempts)s)::int as given_up
                        from (select r.retry_at, r.attempts from relevo.ingest_rejects r
                               where r.source = s.source and r.resolved_at is null limit %(most)s) x) r
 order by s.source;

-- name: list_deliveries
-- Lists deliveries of a state, newest first, from a place on, out of a bounded number that it looks at; tells how many and where the last stands.
with looked as materialized (
  select x.*
    from ((select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
             from relevo.notification_deliveries d
            where d.event_day = %(day)s::date and d.id < %(number)s::bigint
            order by d.event_day desc, d.id desc limit %(look_at)s)
          union all
          (select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
             from relevo.notification_deliveries d
            where d.event_day < coalesce(%(day)s::date, 'infinity')
            order by d.event_day desc, d.id desc limit %(look_at)s)) x
   order by x.event_day desc, x.id desc
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.event_day, l.id))[1] as last_day,
               (array_agg(l.place order by l.event_day, l.id))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.event_day desc, l.id desc limit %(limit)s) f on true
 order by f.event_day desc, f.id desc;

-- name: list_failures_of
-- Lists what went wrong with some deliveries, attempt by attempt, as far as it is kept: the first twenty of each.
select u.id, jsonb_agg(jsonb_build_object('at', to_char(f.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'attempt', f.attempt, 'found_by', f.found_by,
                                          'status', f.became, 'error_code', f.error_code, 'error_message', f.error_message) order by f.n) as failed_attempts
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as u(event_day, id)
  cross join lateral (select f.* from relevo.failed_attempts f where f.event_day = u.event_day and f.delivery_id = u.id offset 0) f
 group by u.id;

-- name: list_deliveries_of_event
-- Lists those of one event in a state, and if asked to one installation alone, by installation, from a place on; bounded as the list of all.
with looked as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.installation_id::text as place
    from relevo.notification_deliveries d
   where d.event_day = (select e.event_day from relevo.notification_events e where e.id = %(event_id)s) and d.notification_event_id = %(event_id)s
     and d.installation_id >= coalesce(%(installation_id)s::uuid, '00000000-0000-0000-0000-000000000000')
     and d.installation_id <= coalesce(%(installation_id)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
     and d.installation_id > coalesce(%(number)s::uuid, '00000000-0000-0000-0000-000000000000')
   order by d.event_day, d.notification_event_id, d.installation_id
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.installation_id desc))[1] as last_day,
               (array_agg(l.place order by l.installation_id desc))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.installation_id limit %(limit)s) f on true
 order by f.installation_id;

-- name: list_deliveries_of_phone
-- Lists those to one installation in a state, newest first, from a place on; bounded as the list of all.
with looked as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
    from relevo.notification_deliveries d
   where d.installation_id = %(installation_id)s and d.id < coalesce(%(number)s::bigint, 9223372036854775807)
   order by d.id desc
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.id))[1] as last_day,
               (array_agg(l.place order by l.id))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.id desc limit %(limit)s) f on true
 order by f.id desc;

-- name: list_pushes
-- Sums up what was sent, confirmed and failed per stretch of time, from the minutes kept and from what is not summed up to minutes yet.
select to_timestamp(floor(extract(epoch from x.at) / %(every_s)s) * %(every_s)s) as at, sum(x.sent)::bigint as sent,
       sum(x.confirmed)::bigint as confirmed, sum(x.failed)::bigint as failed
  from (select m.minute as at, m.sent, m.confirmed, m.failed from relevo.push_minutes m
         where m.minute >= %(since)s and not relevo.is_news_project(m.project)
        union all
        select t.at, t.sent, t.confirmed, t.failed
          from relevo.projects p join relevo.push_tallies t on t.project = p.project and t.at >= %(since)s
         where not relevo.is_news_project(p.project)) x
 group by 1
 order by 1;

-- name: count_phones
-- Counts of a bounded number of the newest phones how many there are, and how many may get pushes, by platform.
select i.platform, count(*)::int as phones, count(*) filter (where i.receives)::int as receiving
  from (select n.platform, relevo.may_receive(n) as receives
          from relevo.device_installations n where not n.for_news order by n.seq desc limit %(most)s) i
 group by i.platform
 order by i.platform;

-- name: sum_event_types
-- Sums up the newest events, news left out, out of so many that are looked at, by type: how many, when the last was made, how far their deliveries are.
with looked as materialized (
  select e.id, e.event_type, e.created_at
    from (select n.id, n.event_type, n.created_at from relevo.notification_events n order by n.id desc limit %(look_at)s) e
   where e.event_type <> 'relevo.news'
), counted as materialized (
  select l.event_type, x.status, sum(x.deliveries) as n
    from looked l
    cross join lateral (select g.status, g.deliveries from relevo.event_progress g where g.event_id = l.id
                        union all
                        select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = l.id) x
   group by l.event_type, x.status
  having sum(x.deliveries) > 0
), kinds as (
  select l.event_type, count(*)::int as events, max(l.created_at) as last_at from looked l group by l.event_type
)
select k.event_type, k.events, k.last_at, sum(k.events) over ()::int as looked_at,
       coalesce((select jsonb_object_agg(c.status, c.n) from counted c where c.event_type = k.event_type), '{}') as deliveries
  from kinds k
 order by k.events desc, k.event_type
 limit %(limit)s;

-- name: list_durations
-- Lists how long the last runs of each cycle took, and how they ended, newest first. Each cycle is asked for as a range, in whose order only the
-- index by cycle has them: by that of all runs the planner would look for a cycle that seldom runs among all others.
select s.cycle, s.source, r.started_at, r.outcome, extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds
  from relevo.cycle_state s
  cross join lateral (select r.started_at, r.finished_at, r.outcome
                        from relevo.worker_runs r
                       where (r.cycle, r.source) >= (s.cycle, s.source) and (r.cycle, r.source) <= (s.cycle, s.source) and r.outcome <> 'skipped'
                       order by r.cycle, r.source, r.started_at desc, r.id desc limit %(limit)s) r
 order by s.cycle, s.source, r.started_at desc;
