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

-- name: list_rejects
-- Lists what sources offered and could not be used, newest first.
select r.id, r.source, r.place, r.external_id, r.reason, r.attempts, r.retry_at, r.created_at, r.updated_at
  from relevo.ingest_rejects r
 where r.resolved_at is null and (%(source)s::text is null or r.source = %(source)s)
 order by r.updated_at desc, r.id desc
 limit %(limit)s;

-- name: page_rejects
-- Lists what sources offered and could not be used, newest first, from a place on, out of so many; a row without an id says that there is none.
with piece as materialized (
  select r.id, r.source, r.place, r.external_id, r.reason, r.attempts, r.retry_at, r.created_at, r.updated_at, r.resolved_at
    from relevo.ingest_rejects r
   where r.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by r.id desc
   limit %(look)s
)
select e.looked, e.last_id, f.*, now() as now
  from (select count(*)::int as looked, min(p.id) as last_id from piece p) e
  left join (select p.* from piece p
              where p.resolved_at is null and (%(source)s::text is null or p.source = %(source)s)
              order by p.id desc
              limit %(limit)s) f on true
 order by f.id desc;

-- name: list_quotas
-- Lists the quotas in which sources ask: today's requests, the pace, and when the next may start.
select l.lane as quota, case when l.day = (now() at time zone %(timezone)s)::date then l.requests else 0 end as requests, l.pace_ms, l.not_before,
       l.asked_at, now() as now
  from relevo.source_lanes l
 order by l.lane
 limit 100;
