-- needs relevo 0.2.0
-- The usual wave, of which everything may be sent and is, is journalled and settled by functions: their plans are kept by the server,
-- also behind a transaction pooler. Whatever is not usual they leave untouched, to the statements that know every case.

-- Journals a wave that is what the claim holds next, if nothing stands in its way; else it writes nothing and says so. The wave's requests
-- are given by the places of their first and last delivery in it.
create function relevo.journal_wave_1(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts int[], lasts int[],
                                      timeout_ms int, given_at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  at timestamptz := coalesce(given_at, now());
  size int := cardinality(wave_ids);
  worker text;
  held_days date[];
  held_ids bigint[];
begin
  select c.worker_id, c.days[:size], c.ids[:size] into worker, held_days, held_ids
    from relevo.claims c
   where c.token = claim and c.leased_until > at + timeout_ms * interval '1 millisecond'
     for key share;
  if held_ids is distinct from wave_ids
     or exists (select from unnest(events) as v(event_id)
                  left join lateral (select e.deadline_at, e.ended_at, true as is_there from relevo.notification_events e
                                      where e.id = v.event_id offset 0) e on true
                 where e.is_there is null or e.ended_at is not null or e.deadline_at <= at)
     or (exists (select from relevo.late_tickets)
         and exists (select from unnest(held_days, held_ids) as k(event_day, id)
                      cross join lateral (select from relevo.late_tickets l
                                           where l.event_day = k.event_day and l.delivery_id = k.id offset 0) l)) then
    return false;
  end if;
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
  select (at at time zone 'UTC')::date, q.id, claim, worker, of_project, at, held_days[q.first:q.last], held_ids[q.first:q.last]
    from unnest(request_ids, firsts, lasts) as q(id, first, last);
  return true;
end
$$;

-- Tells of the phones of a wave that none of them changed since it was claimed: each has the token it had, and may receive what all of
-- these events say. `made` is when the first of the wave's deliveries was made: a phone that was handled later is looked at closely.
create function relevo.phones_unchanged_1(installations uuid[], versions int[], events bigint[], made timestamptz) returns boolean
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  categories text[] := array(select e.category from relevo.notification_events e where e.id = any (events) and e.category is not null);
begin
  return not exists (
    select from unnest(installations, versions) as w(installation_id, token_version)
      left join relevo.device_installations i on i.installation_id = w.installation_id
     where (i.token_version = w.token_version and relevo.may_receive(i) and (i.handled_before is null or i.handled_before < made)
            and (i.opt_outs = '{}' or not i.opt_outs && categories)) is not true);
end
$$;

-- Settles requests of which every delivery was sent, and which are what the claim holds next: just as the general statement does, and
-- null, with nothing written, where that has to do it. What each delivery's event, past and phone are the claim told; a row that is gone
-- since raises no_data_found, and undoes all.
create function relevo.settle_sent_1(claim uuid, of_project text, sent_ids bigint[], tickets text[], of_installations uuid[], versions int[],
                                     of_attempts smallint[], request_ids uuid[], firsts int[], lasts int[], events bigint[], formers text[],
                                     counts int[], receipt_ms int, finish boolean, given_at timestamptz) returns int language plpgsql volatile
as $$
declare
  at timestamptz := coalesce(given_at, now());
  size int := cardinality(sent_ids);
  held_days date[];
  held_ids bigint[];
  is_all boolean;
  written int;
begin
  select c.days[:size], c.ids[:size], cardinality(c.ids) = size into held_days, held_ids, is_all
    from relevo.claims c where c.token = claim for no key update;
  if held_ids is distinct from sent_ids then
    return null;
  end if;
  update relevo.notification_deliveries d
     set status = 'sent', attempt_count = d.attempt_count + 1, lapse_count = 0, last_attempt_at = at, completed_at = null, updated_at = at,
         last_error_code = null, last_error_message = null, provider_ticket_id = a.ticket_id,
         token_version = coalesce(a.token_version, d.token_version)
    from (select * from unnest(held_days, held_ids, tickets, versions) as u(event_day, id, ticket_id, token_version)
           order by u.event_day, u.id) a -- every writer locks deliveries in this order: no deadlock
   where d.event_day = a.event_day and d.id = a.id;
  get diagnostics written = row_count;
  if written <> size then
    raise exception using errcode = 'no_data_found', message = format('%s of %s deliveries of claim %s are gone', size - written, size, claim);
  end if;
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select of_project, at + receipt_ms * interval '1 millisecond', at, held_days[q.first:q.last], held_ids[q.first:q.last],
         of_installations[q.first:q.last], tickets[q.first:q.last], versions[q.first:q.last], of_attempts[q.first:q.last]
    from unnest(firsts, lasts) as q(first, last);
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from unnest(events, formers, counts) as c(event_id, former, n)
    cross join lateral (values (c.event_id, 'sent', c.n), (c.event_id, c.former, -c.n)) as m(event_id, status, n)
   group by m.event_id, m.status
  having sum(m.n) <> 0;
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, failed) values (of_project, at, size, size, 0, 0);
  if 'retryable' = any (formers) then
    insert into relevo.event_repeat_deltas (event_id, repeats)
    select c.event_id, sum(c.n)::int from unnest(events, formers, counts) as c(event_id, former, n) where c.former = 'retryable' group by c.event_id;
  end if;
  perform relevo.note_sent_1(events, at);
  update relevo.push_requests r set answered_at = at, outcome = 'answered'
   where r.claim_token = claim and r.answered_at is null and r.id = any (request_ids);
  if exists (select from relevo.late_tickets) then
    delete from relevo.late_tickets l using unnest(held_days, held_ids, tickets) as a(event_day, id, ticket_id)
     where l.event_day = a.event_day and l.delivery_id = a.id and l.ticket_id = a.ticket_id;
  end if;
  if is_all and finish then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c
       set days = c.days[size + 1:], ids = c.ids[size + 1:],
           leased_until = case when at < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond'
                               then greatest(c.leased_until, at + c.lease_ms * interval '1 millisecond') else c.leased_until end
     where c.token = claim;
  end if;
  return written;
end
$$;

-- Notes the first push of events, and tells their tenders. Tenders are locked before their events, and by their key, as ingest does: no
-- deadlock. Fan-out may hold an event; then the next settle of it notes this.
create function relevo.note_sent_1(events bigint[], at timestamptz) returns void language plpgsql volatile
as $$
declare
  unnoted bigint[];
  tenders bigint[];
begin
  select array_agg(e.id) filter (where e.first_sent_at is null), array_agg(e.licitacion_id) filter (where l.id is not null)
    into unnoted, tenders
    from (select distinct v.event_id from unnest(events) as v(event_id)) v
    cross join lateral (select e.id, e.licitacion_id, e.first_sent_at from relevo.notification_events e where e.id = v.event_id offset 0) e
    left join lateral (select l.id from relevo.licitaciones l where l.id = e.licitacion_id and not l.notificada offset 0) l on true;
  if tenders is not null then
    update relevo.licitaciones l set notificada = true
      from (select t.id from relevo.licitaciones t where t.id = any (tenders) and not t.notificada
             order by t.namespace, t.external_id for no key update) t
     where l.id = t.id;
  end if;
  if unnoted is not null then
    update relevo.notification_events e set first_sent_at = at
      from (select n.id from relevo.notification_events n where n.id = any (unnoted) and n.first_sent_at is null
              for no key update skip locked) n
     where e.id = n.id;
  end if;
end
$$;

revoke all on function relevo.journal_wave_1(uuid, text, bigint[], bigint[], uuid[], int[], int[], int, timestamptz) from public;
revoke all on function relevo.phones_unchanged_1(uuid[], int[], bigint[], timestamptz) from public;
revoke all on function relevo.settle_sent_1(uuid, text, bigint[], text[], uuid[], int[], smallint[], uuid[], int[], int[], bigint[], text[], int[],
                                            int, boolean, timestamptz) from public;
revoke all on function relevo.note_sent_1(bigint[], timestamptz) from public;

-- A sent delivery is longer than a pending one, by its ticket: with less room than this one in five did not fit beside its former self.
do $$
declare
  part regclass;
begin
  for part in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'relevo.notification_deliveries'::regclass loop
    execute format('alter table %s set (fillfactor = 40)', part);
  end loop;
end
$$;

-- Makes the partitions of some months that are not there; one that was retired is never made again.
create or replace function relevo.ensure_partitions(first_month date, months int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  parent text;
  month_start date;
  partition_name text;
  made int := 0;
begin
  foreach parent in array array['notification_deliveries', 'push_requests'] loop
    for i in 0 .. months - 1 loop
      month_start := (date_trunc('month', first_month::timestamp) + make_interval(months => i))::date;
      partition_name := parent || to_char(month_start, '_YYYY_MM');
      continue when to_regclass(format('relevo.%I', partition_name)) is not null;
      continue when exists (select from relevo.archive_exports x where x.entity = parent and x.month = month_start);
      perform pg_advisory_xact_lock(hashtextextended('relevo.ensure_partitions', 0));
      -- made by another while we waited? Asked of the table, for to_regclass remembers its first answer
      continue when exists (select from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relname = partition_name);
      execute format('create table relevo.%I (like relevo.%I including defaults including constraints) with '
        '(fillfactor = %s, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, '
        'autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, '
        'autovacuum_analyze_scale_factor = 0.02)', partition_name, parent, case parent when 'push_requests' then 70 else 40 end);
      execute format('alter table relevo.%I attach partition relevo.%I for values from (%L) to (%L)',
        parent, partition_name, month_start, (month_start + interval '1 month')::date);
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;
