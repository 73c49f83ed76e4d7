-- needs relevo 0.2.0
-- What is due lies in chunks of one request's worth; a claim is the one fence; receipts are awaited by the request; dead letters lie apart.

-- Workers of 0.1 know nothing of chunks: a delivery that one of them made would lie in none. From here on every statement of theirs
-- that writes deliveries names a column that is gone, and is refused; one that lives is named, so that it is stopped in peace.
do $$
declare
  alive text;
begin
  select string_agg(format('%s (on %s, process %s)', w.worker_id, w.hostname, w.pid), ', ' order by w.worker_id) into alive
    from relevo.workers w
   where w.stopped_at is null and w.lost_at is null and w.version like '0.1.%'
     and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now();
  if alive is not null then
    raise exception using errcode = 'object_in_use',
      message = format('workers of version 0.1 are running: %s', alive),
      hint = 'Stop them, and migrate again: this one migration cannot be made beside them.';
  end if;
end
$$;

create table relevo.due_chunks (
  id            bigint generated always as identity primary key,
  project       text not null,
  lane          text not null check (lane in ('urgent', 'bulk')),
  due_at        timestamptz not null,
  event_day     date not null,
  event_id      bigint not null,
  event_type    text not null,
  created_at    timestamptz not null,
  attempt_count smallint not null check (attempt_count between 0 and 100),
  lapse_count   smallint not null check (lapse_count between 0 and 100),
  had_error     boolean not null,
  ids           bigint[] not null check (cardinality(ids) between 1 and 100),
  installations uuid[] not null,
  check (cardinality(installations) = cardinality(ids))
) with (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

alter table relevo.due_chunks alter column ids set storage main, alter column installations set storage main;

comment on table relevo.due_chunks is 'What waits to be sent: up to one request''s worth of deliveries of one event that fall due together. Written and deleted, never changed.';
comment on column relevo.due_chunks.created_at is 'When its deliveries were made: what was handled in the app since then is not pushed any more.';
comment on column relevo.due_chunks.had_error is 'Whether their last try met an error: a probe takes others first.';

create index due_chunks_next on relevo.due_chunks (project, lane, due_at, id);
create index due_chunks_event on relevo.due_chunks (event_id, id);

create table relevo.awaited_receipts (
  id            bigint generated always as identity primary key,
  project       text not null,
  look_at       timestamptz not null,
  sent_at       timestamptz not null,
  claim_token   uuid,
  days          date[] not null,
  ids           bigint[] not null check (cardinality(ids) between 1 and 100),
  installations uuid[] not null,
  tickets       text[] not null,
  versions      integer[] not null,
  attempts      smallint[] not null,
  check (cardinality(days) = cardinality(ids) and cardinality(installations) = cardinality(ids) and cardinality(tickets) = cardinality(ids)
         and cardinality(versions) = cardinality(ids) and cardinality(attempts) = cardinality(ids))
) with (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

comment on table relevo.awaited_receipts is 'Sent deliveries whose receipts are still to be asked for, up to a request''s worth that were sent together.';

create index awaited_receipts_next on relevo.awaited_receipts (project, look_at, id);
create index awaited_receipts_claim on relevo.awaited_receipts (claim_token) where claim_token is not null;

create table relevo.dead_letters (
  event_day   date not null,
  delivery_id bigint not null,
  event_id    bigint not null,
  project     text not null,
  error_code  text,
  died_at     timestamptz not null,
  primary key (event_day, delivery_id)
);

comment on table relevo.dead_letters is 'The deliveries that failed for good, as long as their month is not archived: what a redrive opens again.';

create index dead_letters_code on relevo.dead_letters (error_code, delivery_id);
create index dead_letters_event on relevo.dead_letters (event_id);

-- How each project's pushes fared, for charts and histories: minute by minute, for eight days.
alter table relevo.push_tallies
  add column confirmed integer not null default 0,
  add column failed integer not null default 0;

create table relevo.push_minutes (
  project      text not null,
  minute       timestamptz not null,
  sent         bigint not null,
  answers      bigint not null,
  unregistered bigint not null,
  confirmed    bigint not null,
  failed       bigint not null,
  primary key (project, minute)
) with (fillfactor = 70);

comment on table relevo.push_minutes is 'What push_tallies said of each minute, once it is some minutes old; kept for eight days.';

create index push_minutes_minute on relevo.push_minutes (minute);

alter table relevo.claims
  add column events bigint[] not null default '{}',
  add column due_at timestamptz;

comment on column relevo.claims.ids is 'The deliveries it holds: one belongs to a claim exactly while it stands here. What was settled is taken out.';
comment on column relevo.claims.events is 'The events of its deliveries, each once, as they were claimed.';
comment on column relevo.claims.due_at is 'When the first of its deliveries fell due: what is handed back is due since then.';

-- The service a project's deliveries go to; Expo's projects have their own name alone.
create function relevo.provider_of(project text) returns text language sql immutable parallel safe
return case when position('::' in project) > 0 then split_part(project, '::', 1) else 'expo' end;

-- Puts open deliveries into the queue: those of one event, with the same past, that fall due together, go into one
-- chunk. Whoever calls this has locked them and taken them out of where they stood.
create function relevo.queue_deliveries(of_days date[], of_ids bigint[], due timestamptz[]) returns int language sql volatile
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  with open as materialized (
    select d.*, k.due_at,
           (row_number() over (partition by d.project, d.lane, k.due_at, d.event_day, d.notification_event_id, d.created_at, d.attempt_count,
                                            d.lapse_count, d.last_error_code is not null order by d.id) - 1)
             / case d.lapse_count when 0 then 100 when 1 then 10 else 1 end as piece -- what lapsed together comes back in tenths, down to one
      from unnest(of_days, of_ids, due) as k(event_day, id, due_at)
      cross join lateral (select * from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id offset 0) d
     where d.status in ('pending', 'retryable')
  ), made as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select o.project, o.lane, o.due_at, o.event_day, o.notification_event_id, min(o.event_type), o.created_at, o.attempt_count, o.lapse_count,
           o.last_error_code is not null, array_agg(o.id order by o.id), array_agg(o.installation_id order by o.id)
      from open o
     group by o.project, o.lane, o.due_at, o.event_day, o.notification_event_id, o.created_at, o.attempt_count, o.lapse_count,
              o.last_error_code is not null, o.piece
    returning cardinality(ids) as n
  )
  select coalesce(sum(m.n), 0)::int from made m
$$;

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now.
create function relevo.look_at_1(chunks relevo.due_chunks[], at timestamptz)
  returns table (event_day date, id bigint, event_id bigint, installation_id uuid, event_type text, provider text, project text, lane text,
                 at_most_once boolean, status text, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, token text,
                 token_version int, platform text, locale text, obstacle text, seconds_left float8, created_at timestamptz)
  language sql stable
as $$
  select c.event_day, u.id, c.event_id, u.installation_id, c.event_type, relevo.provider_of(c.project), c.project, c.lane,
         coalesce(e.at_most_once, false), case when c.attempt_count > 0 then 'retryable' else 'pending' end, c.attempt_count, c.lapse_count,
         e.deadline_at, i.token, i.token_version, i.platform, i.locale,
         case when e.id is null then 'event_gone'
              when e.ended_at is not null then 'event_ended'
              when i.handled_before >= c.created_at then 'handled_elsewhere'
              when e.deadline_at <= at then 'deadline_passed'
              when i.installation_id is null then 'installation_gone'
              when not relevo.may_receive(i) then 'not_allowed'
              when e.category = any (i.opt_outs) then 'opted_out'
              when e.audience = 'matching' and not exists (
                select from relevo.notification_preferences p
                 where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
              when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                select from relevo.event_repeats r where r.event_id = c.event_id and r.held_at is not null) then 'repeats_held'
         end,
         extract(epoch from e.deadline_at - at)::float8, c.created_at
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral unnest(c.ids, c.installations) as u(id, installation_id)
    left join relevo.device_installations i on i.installation_id = u.installation_id
$$;

-- Writes the claim that chunks, which this transaction has deleted, go into.
create function relevo.write_claim_1(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks relevo.due_chunks[]) returns void
  language sql volatile
as $$
  insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids, events, due_at)
  select claim, worker, of_cycle, at, lease, at + lease * interval '1 millisecond', array_agg(c.event_day), array_agg(u.id),
         array(select distinct n.event_id from unnest(chunks) n), min(c.due_at)
    from unnest(chunks) c cross join lateral unnest(c.ids) as u(id)
$$;

-- Puts back what is left of a chunk that a claim took only in part.
create function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void language sql volatile
as $$
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations)
  values (chunk.project, chunk.lane, chunk.due_at, chunk.event_day, chunk.event_id, chunk.event_type, chunk.created_at, chunk.attempt_count,
          chunk.lapse_count, chunk.had_error, left_ids, left_installations)
$$;

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it.
create function relevo.claim_due_1(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int)
  returns table (event_day date, id bigint, event_id bigint, installation_id uuid, event_type text, provider text, project text, lane text,
                 at_most_once boolean, status text, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, token text,
                 token_version int, platform text, locale text, obstacle text, seconds_left float8, created_at timestamptz, lease_ms int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  head record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for head in
    select c.id, c.lapse_count, coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms
      from relevo.due_chunks c
     where c.project = of_project and c.lane = of_lane and c.due_at <= at
       and (only_types is null or c.event_type = any (only_types)) and (not_types is null or c.event_type <> all (not_types))
       and (shards is null or c.id % shards = shard)
     order by c.due_at, c.id
  loop
    exit when room <= 0 or lease <> head.lease_ms or (lease is not null and head.lapse_count >= suspect_lapses);
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = head.id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    if cardinality(chunk.ids) > room then
      perform relevo.put_back_1(chunk, chunk.ids[room + 1:], chunk.installations[room + 1:]);
      chunk.ids := chunk.ids[:room];
      chunk.installations := chunk.installations[:room];
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := head.lease_ms;
    exit when head.lapse_count >= suspect_lapses;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select l.*, lease from relevo.look_at_1(taken, at) l;
end
$$;

-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
create function relevo.claim_probe_1(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                     shard int, shards int, only_types text[], not_types text[], usual_lease_ms int, look_at int)
  returns table (event_day date, id bigint, event_id bigint, installation_id uuid, event_type text, provider text, project text, lane text,
                 at_most_once boolean, status text, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, token text,
                 token_version int, platform text, locale text, obstacle text, seconds_left float8, created_at timestamptz, lease_ms int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  faulty uuid[] := array(select u.installation_id
                           from relevo.credential_answers a cross join unnest(a.installations, a.faulty) as u(installation_id, faulty)
                          where a.project = of_project and u.faulty is not false);
  refused bigint[] := array(select r.event_id from relevo.refused_events r where r.project = of_project);
  picked record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for picked in
    select h.chunk_id, h.lease_ms, array_agg(h.id order by h.place) as ids, min(h.place) as first_place
      from (select c.id as chunk_id, u.id,
                   coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms,
                   row_number() over (order by u.installation_id = any (faulty) or c.event_id = any (refused), c.had_error, c.due_at, u.id) as place
              from (select o.*, sum(cardinality(o.ids)) over (order by o.due_at, o.id) - cardinality(o.ids) as before
                      from (select * from relevo.due_chunks o
                             where o.project = of_project and o.lane = of_lane and o.due_at <= at
                               and (only_types is null or o.event_type = any (only_types))
                               and (not_types is null or o.event_type <> all (not_types))
                               and (shards is null or o.id % shards = shard)
                             order by o.due_at, o.id limit look_at) o) c
              cross join lateral unnest(c.ids, c.installations) as u(id, installation_id)
             where c.before < look_at) h
     where h.place <= 10 * most -- some may be in others' hands
     group by h.chunk_id, h.lease_ms
     order by min(h.place)
  loop
    exit when room <= 0;
    continue when lease <> picked.lease_ms;
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = picked.chunk_id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    picked.ids := picked.ids[:room];
    if cardinality(picked.ids) < cardinality(chunk.ids) then
      perform relevo.put_back_1(chunk, array_agg(u.id), array_agg(u.installation_id))
         from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id <> all (picked.ids);
      select array_agg(u.id order by array_position(picked.ids, u.id)), array_agg(u.installation_id order by array_position(picked.ids, u.id))
        into chunk.ids, chunk.installations
        from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id = any (picked.ids);
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := picked.lease_ms;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select l.*, lease from relevo.look_at_1(taken, at) l;
end
$$;

-- Reads back what a claim holds, its COMMIT answer lost, and looks at it as a claim does.
create function relevo.adopt_claim_1(claim uuid, at timestamptz)
  returns table (event_day date, id bigint, event_id bigint, installation_id uuid, event_type text, provider text, project text, lane text,
                 at_most_once boolean, status text, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, token text,
                 token_version int, platform text, locale text, obstacle text, seconds_left float8, created_at timestamptz, lease_ms int)
  language sql stable
as $$
  select l.*, c.lease_ms
    from relevo.claims c
    cross join lateral relevo.look_at_1(
      array(select row(0, d.project, d.lane, c.due_at, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count,
                       d.lapse_count, d.last_error_code is not null, array[d.id], array[d.installation_id])::relevo.due_chunks
              from unnest(c.days, c.ids) with ordinality as k(event_day, id, n)
              cross join lateral (select * from relevo.notification_deliveries d
                                   where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable') offset 0) d
             order by k.n), coalesce(at, now())) l
   where c.token = claim
$$;

revoke all on function relevo.provider_of(text) from public;
revoke all on function relevo.queue_deliveries(date[], bigint[], timestamptz[]) from public;
revoke all on function relevo.look_at_1(relevo.due_chunks[], timestamptz) from public;
revoke all on function relevo.write_claim_1(uuid, text, text, int, timestamptz, relevo.due_chunks[]) from public;
revoke all on function relevo.put_back_1(relevo.due_chunks, bigint[], uuid[]) from public;
revoke all on function relevo.claim_due_1(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int) from public;
revoke all on function relevo.claim_probe_1(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int) from public;
revoke all on function relevo.adopt_claim_1(uuid, timestamptz) from public;

-- What is there moves over, and nobody writes meanwhile: not even a worker of 0.1 that was stopped in its midst and wakes up now. Claims of
-- workers that are gone stay, with what they still hold: a reaper ends them as always.
lock table relevo.notification_deliveries in share row exclusive mode;

delete from relevo.claims c where c.cycle = 'receipt';

update relevo.claims c
   set days = coalesce(h.days, '{}'), ids = coalesce(h.ids, '{}'), events = coalesce(h.events, '{}'), due_at = h.due_at
  from relevo.claims o
  left join lateral (select array_agg(d.event_day) as days, array_agg(d.id) as ids, array_agg(distinct d.notification_event_id) as events,
                            min(d.next_attempt_at) as due_at
                       from unnest(o.days, o.ids) as k(event_day, id)
                       join relevo.notification_deliveries d on d.event_day = k.event_day and d.id = k.id
                      where d.claim_token = o.token and d.status in ('pending', 'retryable')) h on true
 where c.token = o.token;

insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                               ids, installations)
select o.project, o.lane, max(o.next_attempt_at), o.event_day, o.notification_event_id, min(o.event_type), o.created_at, o.attempt_count,
       o.lapse_count, o.last_error_code is not null, array_agg(o.id order by o.id), array_agg(o.installation_id order by o.id)
  from (select d.*, date_trunc('minute', d.next_attempt_at) as due_minute,
               (row_number() over (partition by d.project, d.lane, date_trunc('minute', d.next_attempt_at), d.event_day, d.notification_event_id,
                                                d.created_at, d.attempt_count, d.lapse_count, d.last_error_code is not null
                                   order by d.id) - 1) / case d.lapse_count when 0 then 100 when 1 then 10 else 1 end as piece
          from relevo.notification_deliveries d
         where d.status in ('pending', 'retryable')
           and (d.claim_token is null or not exists (select from relevo.claims c where c.token = d.claim_token and d.id = any (c.ids)))) o
 group by o.project, o.lane, o.due_minute, o.event_day, o.notification_event_id, o.created_at, o.attempt_count, o.lapse_count,
          o.last_error_code is not null, o.piece;

insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select s.project, coalesce(max(s.next_receipt_at), max(s.sent_at)), max(s.sent_at), array_agg(s.event_day), array_agg(s.id),
       array_agg(s.installation_id), array_agg(s.provider_ticket_id), array_agg(s.token_version), array_agg(s.attempt_count)
  from (select d.*, coalesce(d.last_attempt_at, d.updated_at) as sent_at,
               date_trunc('minute', d.next_receipt_at) as look_minute, date_trunc('minute', coalesce(d.last_attempt_at, d.updated_at)) as sent_minute,
               (row_number() over (partition by d.project, date_trunc('minute', d.next_receipt_at),
                                                date_trunc('minute', coalesce(d.last_attempt_at, d.updated_at)) order by d.id) - 1) / 100 as piece
          from relevo.notification_deliveries d where d.status = 'sent') s
 group by s.project, s.look_minute, s.sent_minute, s.piece;

insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select d.event_day, d.id, d.notification_event_id, d.project, d.last_error_code, d.completed_at
  from relevo.notification_deliveries d
 where d.status = 'failed' -- what is sealed is on its way to the archive
   and not exists (select from relevo.archive_exports x
                    where x.entity = 'notification_deliveries' and x.month = date_trunc('month', d.event_day::timestamp)::date);

-- A delivery as a person reads it: where it stands in the queue, and who has it, are looked up for each row.
drop view relevo.deliveries;

alter table relevo.notification_deliveries
  drop column claim_token,
  drop column next_attempt_at,
  drop column next_receipt_at;

-- It named a column that is gone, and went with it.
alter table relevo.notification_deliveries add constraint times_fit_an_archive check (
  event_day >= '1900-01-01' and event_day <= '2300-01-01'
  and least(deadline_at, last_attempt_at, completed_at, created_at, updated_at) >= '1900-01-01Z'
  and greatest(deadline_at, last_attempt_at, completed_at, created_at, updated_at) <= '2300-01-01Z') not valid;

drop index if exists relevo.notification_deliveries_due, relevo.notification_deliveries_receipts, relevo.notification_deliveries_dead;

create index notification_deliveries_phone on relevo.notification_deliveries (installation_id, id);

create view relevo.deliveries as
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.at_most_once, d.status,
       d.attempt_count, d.lapse_count, coalesce(q.due_at, c.due_at) as next_attempt_at,
       e.deadline_at, d.last_attempt_at, d.completed_at, d.created_at, d.updated_at, d.last_error_code, d.last_error_message,
       d.provider_ticket_id, d.provider_receipt_id, coalesce(c.token, r.claim_token) as claim_token,
       coalesce(c.claimed_at, rc.claimed_at) as locked_at, coalesce(c.worker_id, rc.worker_id) as locked_by,
       coalesce(c.leased_until, rc.leased_until) as locked_until, coalesce(c.token, rc.token) is not null as processing,
       d.token_version, r.look_at as next_receipt_at
  from relevo.notification_deliveries d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join lateral (select q.due_at from relevo.due_chunks q
                      where d.status in ('pending', 'retryable') and q.event_id = d.notification_event_id and d.id = any (q.ids) limit 1) q on true
  left join lateral (select c.token, c.claimed_at, c.worker_id, c.leased_until, c.due_at from relevo.claims c
                      where d.status in ('pending', 'retryable') and d.id = any (c.ids) limit 1) c on true
  left join lateral (select r.look_at, r.claim_token from relevo.awaited_receipts r
                      where d.status = 'sent' and r.project = d.project and d.id = any (r.ids) limit 1) r on true
  left join relevo.claims rc on rc.token = r.claim_token;

comment on view relevo.deliveries is 'Deliveries with what a person asks of one: when it is due, who has it and until when, when its receipt is asked for.';

-- Deletes events with everything that came of them. What a claim or an awaited receipt still names is found gone by its holder.
create or replace function relevo.delete_events(event_ids bigint[]) returns integer language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  deleted int := 0;
begin
  for gone in delete from relevo.notification_events where id = any (event_ids) returning * loop
    delete from relevo.due_chunks where event_id = gone.id;
    delete from relevo.dead_letters where event_id = gone.id;
    -- locked in the order of every writer, so that a settle under way and this do not wait for each other
    perform from relevo.notification_deliveries d
     where d.event_day = gone.event_day and d.notification_event_id = gone.id order by d.event_day, d.id for update;
    delete from relevo.notification_deliveries where event_day = gone.event_day and notification_event_id = gone.id;
    -- the changes first: a reaper that is folding them is waited for, and its sums go next
    delete from relevo.event_progress_deltas where event_id = gone.id;
    delete from relevo.event_progress where event_id = gone.id;
    deleted := deleted + 1;
  end loop;
  return deleted;
end
$$;

-- Tells whether something of a month is still to be written: by what stands in a queue, a claim or an awaited receipt.
create or replace function relevo.is_open(of_entity text, of_month date) returns boolean language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  answer boolean;
begin
  if of_entity = 'notification_deliveries' then
    return exists (select from relevo.due_chunks q where q.event_day >= of_month and q.event_day < next_month)
        or exists (select from relevo.awaited_receipts r cross join unnest(r.days) as d(day) where d.day >= of_month and d.day < next_month)
        or exists (select from relevo.claims c cross join unnest(c.days) as d(day) where d.day >= of_month and d.day < next_month);
  end if;
  execute format($sql$select exists (select from relevo.claims c join relevo.%I r on r.claim_token = c.token and r.answered_at is null)$sql$,
                 of_entity || to_char(of_month, '_YYYY_MM')) into answer;
  return answer;
end
$$;

-- Ends some of what is still open in an old month and not claimed, chunk by chunk, and tells how many deliveries it took out of the queues:
-- those whose event was deleted, too, so that whoever calls this again and again comes to the end.
create or replace function relevo.close_deliveries(of_month date, most integer, at timestamptz) returns integer language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  ended int;
begin
  with unsent as materialized (
    delete from relevo.due_chunks q
     where q.id = any (array(select o.id from relevo.due_chunks o where o.event_day >= of_month and o.event_day < next_month
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning q.event_day, q.ids
  ), awaited as materialized (
    delete from relevo.awaited_receipts r
     where r.id = any (array(select o.id from relevo.awaited_receipts o
                              where o.claim_token is null and exists (select from unnest(o.days) as d(day) where d.day >= of_month and d.day < next_month)
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning r.*
  ), kept as ( -- what was sent together with them, for an event of another month, is still awaited
    insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
    select a.project, a.look_at, a.sent_at, array_agg(u.event_day), array_agg(u.id), array_agg(u.installation_id), array_agg(u.ticket),
           array_agg(u.version), array_agg(u.attempt)
      from awaited a
      cross join unnest(a.days, a.ids, a.installations, a.tickets, a.versions, a.attempts) as u(event_day, id, installation_id, ticket, version, attempt)
     where not (u.event_day >= of_month and u.event_day < next_month)
     group by a.id, a.project, a.look_at, a.sent_at
  ), open as materialized (
    select u.event_day, u.ids as id, 'expired' as status, 'It was not sent before its month was archived.' as why
      from (select q.event_day, unnest(q.ids) as ids from unsent q) u
    union all
    select u.event_day, u.id, 'unconfirmed', 'No receipt came before its month was archived.'
      from awaited a cross join unnest(a.days, a.ids) as u(event_day, id) where u.event_day >= of_month and u.event_day < next_month
  ), locked as materialized (
    select d.event_day, d.id, d.status as former_status, o.status, o.why
      from (select * from open order by event_day, id) o
      cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                           where d.event_day = o.event_day and d.id = o.id and d.completed_at is null for no key update) d
  ), closed as (
    update relevo.notification_deliveries d
       set status = l.status, completed_at = coalesce(at, now()), updated_at = coalesce(at, now()), last_error_code = 'retired', last_error_message = l.why
      from locked l
     where d.event_day = l.event_day and d.id = l.id
    returning d.notification_event_id as event_id, d.status, l.former_status
  ), told as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select m.event_id, m.status, sum(m.n)::int
      from (select c.event_id, c.status, 1 as n from closed c
            union all
            select c.event_id, c.former_status, -1 from closed c) m
     group by m.event_id, m.status
  )
  select count(*)::int into ended from open;
  return ended;
end
$$;

-- Counts the rows in a range of a month's blocks that are not final: where nothing stands in a queue they would be lost with their month.
create function relevo.count_unfinished(of_month date, from_block bigint, blocks bigint) returns bigint language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  rows bigint;
begin
  execute format('select count(*) from relevo.%I d where d.ctid >= $1 and d.ctid < $2 and d.completed_at is null',
                 'notification_deliveries' || to_char(of_month, '_YYYY_MM'))
  into rows using format('(%s,0)', from_block)::tid, format('(%s,0)', from_block + blocks)::tid;
  return rows;
end
$$;

revoke all on function relevo.count_unfinished(date, bigint, bigint) from public;

-- Seals a month, unless something of it is open: from its commit on nobody writes to it.
create or replace function relevo.seal_month(of_entity text, of_month date, rows_per_part integer) returns boolean language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
  perform pg_advisory_xact_lock(hashtextextended('relevo.month:' || to_char(of_month, 'YYYY-MM'), 0));
  execute format('lock table relevo.%I in share row exclusive mode', place);
  -- who wrote before is through now: what was opened meanwhile is seen, and keeps the month open; what is claimed is open
  if relevo.is_open(of_entity, of_month) then
    return false;
  end if;
  if of_entity = 'notification_deliveries' then
    update relevo.notification_events e
       set state = 'cancelled', ended_at = now(), swept_at = now(), updated_at = now(),
           end_reason = 'its month was archived before its fan-out was finished'
     where e.state = 'fanning' and date_trunc('month', e.event_day::timestamp)::date = of_month;
    delete from relevo.dead_letters l where l.event_day >= of_month and l.event_day < (of_month + interval '1 month')::date;
  end if;
  insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)
  values (of_entity, of_month, 'sealed', place, rows_per_part, now());
  perform relevo.bar_writes(format('relevo.%I', place)::regclass);
  return true;
end
$$;
