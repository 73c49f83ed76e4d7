-- name: number_phones
-- Numbers the phones, in ten groups of the same size, so that an event for a group is made without looking for its phones; the first one has an owner.
create unlogged table public.bench_phones as
select p.k, p.k %% 10 as part, (row_number() over (partition by p.k %% 10 order by p.k))::int as j, p.installation_id
  from (select row_number() over (order by i.seq) as k, i.installation_id from relevo.device_installations i) p;
create index on public.bench_phones (k);
create index on public.bench_phones (part, j);
analyze public.bench_phones;
update relevo.device_installations set owner = 'user-1' where installation_id = (select p.installation_id from public.bench_phones p where p.k = 1);

-- name: make_month
-- Makes the partitions of a month.
select relevo.ensure_partitions(%(month)s, 1);

-- name: fill_events
-- Makes the events of a month: some for a tenth of the phones, and many for one phone each.
insert into relevo.notification_events (id, event_type, event_key, title, body, audience, content_hash, state, event_day, fanout_started_at, fanout_finished_at,
                                        fanout_upto, created_at, scheduled_at, first_sent_at, targets_selected, deliveries_created)
overriding system value
select %(first_event)s::bigint + x.n, case when x.broad then 'news' else 'order.shipped' end, 'key-' || %(first_event)s::bigint + x.n, 'Something happened', 'It may be of interest to you.',
       case when x.broad then 'everyone' else 'installations' end, '', 'fanned', x.day, x.day, x.day, 0, x.day, x.day, x.day, x.phones, x.phones
  from (select n, n <= %(broad)s::int as broad, case when n <= %(broad)s::int then %(each)s::int else 1 end as phones,
               %(month)s::date + ((case when n <= %(broad)s::int then n - 1 else n - %(broad)s::int - 1 end)::bigint * %(days)s
                                  / case when n <= %(broad)s::int then %(broad)s::int else %(personal)s::int end)::int as day
          from generate_series(1, %(broad)s::int + %(personal)s::int) n) x;

-- name: fill_audiences
-- Says for whom the events for one phone are: every so often for the first one.
insert into relevo.event_audience (event_id, installation_id)
select %(first_event)s::bigint + %(broad)s::int + n, p.installation_id
  from generate_series(1, %(personal)s::int) n
  join public.bench_phones p on p.k = case when n %% %(every)s = 0 then 1 else 2 + n * 7919::bigint %% (%(phones)s - 1) end;

-- name: copy_deliveries
-- Writes the deliveries of a month to a file, in the order of their numbers: nearly all were confirmed.
copy (
  select x.event_day, x.id, x.event_id, x.installation_id, x.event_type, 'expo'::text, 'default'::text, 'bulk'::text, false, x.status, 1::smallint, 0::smallint,
         null::timestamptz, x.at, x.at + interval '30 seconds', x.at, x.at + interval '30 seconds', case x.status when 'failed' then 'MessageTooBig' when 'invalid' then 'DeviceNotRegistered' end,
         case when x.status in ('failed', 'invalid') then 'what the push service said' end, case when x.status in ('ok', 'unconfirmed') then lpad(x.id::text, 36, '0') end,
         null::text, 1, null::timestamptz, null::text
    from (select e.event_day, %(first_id)s::bigint + (e.n - 1) * %(each)s::bigint + p.j as id, e.id as event_id, p.installation_id, e.event_type, e.fanout_started_at as at,
                 case p.j %% 128 when 3 then 'failed' when 5 then 'invalid' when 7 then 'unconfirmed' else 'ok' end as status
            from (select e.*, e.id - %(first_event)s::bigint as n from relevo.notification_events e
                   where e.id > %(first_event)s::bigint and e.id <= %(first_event)s::bigint + %(broad)s::int order by e.id) e
            cross join lateral (select p.j, p.installation_id from public.bench_phones p where p.part = e.n %% 10 and p.j <= %(each)s::int order by p.j) p
          union all
          select e.event_day, %(first_id)s::bigint + %(broad)s::int * %(each)s::bigint + (e.id - %(first_event)s::bigint - %(broad)s::int), e.id, a.installation_id, e.event_type, e.fanout_started_at, 'ok'
            from relevo.notification_events e
            join relevo.event_audience a on a.event_id = e.id
           where e.id > %(first_event)s::bigint + %(broad)s::int and e.id <= %(first_event)s::bigint + %(broad)s::int + %(personal)s::int) x
) to %(path)s (format binary);

-- name: compose_filling
-- Writes what fills a month that stands alone: its keys and indexes are taken off, and made again once its rows are there.
select x.statement
  from (select 1 as n, format('alter table %%s drop constraint %%I', c.conrelid::regclass, c.conname) as statement
          from pg_constraint c where c.conrelid = %(relation)s::regclass and c.contype in ('p', 'u')
        union all select 2, format('drop index %%s', i.indexrelid::regclass)
                    from pg_index i
                   where i.indrelid = %(relation)s::regclass and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
        union all select 3, format('truncate %%s', %(relation)s::regclass)
        union all select 4, format('copy %%s from %%L (format binary, freeze)', %(relation)s::regclass, %(path)s::text)
        union all select 5, format('alter table %%s add constraint %%I %%s', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid))
                    from pg_constraint c where c.conrelid = %(relation)s::regclass and c.contype in ('p', 'u')
        union all select 6, pg_get_indexdef(i.indexrelid)
                    from pg_index i
                   where i.indrelid = %(relation)s::regclass and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
        union all select 7, format('analyze %%s', %(relation)s::regclass)) x
 order by x.n;

-- name: compose_leaving
-- Writes what takes a month out of the table.
select format('alter table relevo.notification_deliveries detach partition %%s', %(relation)s::regclass);

-- name: compose_joining
-- Writes what puts a month back into the table.
select format('alter table relevo.notification_deliveries attach partition %%s for values from (%%L) to (%%L)', %(relation)s::regclass, %(month)s::date,
              (%(month)s::date + interval '1 month')::date);

-- name: work_in_memory
-- Has indexes made in memory in this transaction.
set local maintenance_work_mem = '1GB';

-- name: fill_progress
-- Counts each event's deliveries, as settling does.
insert into relevo.event_progress (event_id, status, deliveries)
select e.id, s.status, s.count
  from relevo.notification_events e
  cross join lateral (select case j %% 128 when 3 then 'failed' when 5 then 'invalid' when 7 then 'unconfirmed' else 'ok' end as status, count(*)
                        from generate_series(1, %(each)s::int) j where e.audience = 'everyone' group by 1
                      union all select 'ok', 1 where e.audience <> 'everyone') s
 where e.id > %(first_event)s::bigint and e.id <= %(first_event)s::bigint + %(broad)s::int + %(personal)s::int;

-- name: fill_dead_letters
-- Names what failed for good.
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select e.event_day, %(first_id)s::bigint + (e.id - %(first_event)s::bigint - 1) * %(each)s::bigint + j, e.id, 'default', 'MessageTooBig', e.fanout_started_at
  from relevo.notification_events e
  cross join generate_series(3, %(each)s::int, 128) j
 where e.id > %(first_event)s::bigint and e.id <= %(first_event)s::bigint + %(broad)s::int;

-- name: fill_requests
-- Journals what was sent of the events for many, by the hundred.
insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids)
select e.event_day, gen_random_uuid(), gen_random_uuid(), 'replica-1', 'default', e.fanout_started_at, e.fanout_started_at + interval '1 second', 'answered',
       array_fill(e.event_day, array[100]), array(select generate_series(x.least, x.least + 99))
  from relevo.notification_events e
  cross join generate_series(1, %(each)s::int / 100) part
  cross join lateral (select %(first_id)s::bigint + (e.id - %(first_event)s::bigint - 1) * %(each)s::bigint + (part - 1) * 100 + 1 as least) x
 where e.id > %(first_event)s::bigint and e.id <= %(first_event)s::bigint + %(broad)s::int;

-- name: number_on
-- Lets new events and deliveries have numbers of their own.
select setval('relevo.notification_events_id_seq', %(first_event)s::bigint + 1), setval('relevo.delivery_ids', %(first_id)s::bigint + 1);

-- name: take_stock
-- Does what autovacuum would do, but for deliveries, which were written as if it had.
vacuum analyze relevo.notification_events, relevo.event_audience, relevo.event_progress, relevo.dead_letters, relevo.push_requests, relevo.device_installations;

-- name: write_out
-- Has the server write now what it would otherwise write while something is measured.
checkpoint;

-- name: read_sizes
-- Tells how many bytes the rows, and the indexes, of deliveries take.
select sum(pg_table_size(i.inhrelid))::float8, sum(pg_indexes_size(i.inhrelid))::float8
  from pg_inherits i where i.inhparent = 'relevo.notification_deliveries'::regclass;

-- name: pick_failed
-- Picks a delivery that failed, of an event.
select l.delivery_id from relevo.dead_letters l where l.event_id = %(event)s limit 1;

-- name: read_page
-- Reads the first page of an owner's inbox.
select relevo.inbox('{"owner": "user-1"}');

-- name: read_unread
-- Reads the first page of what is unread there.
select relevo.inbox('{"owner": "user-1", "status": "unread"}');

-- name: count_items
-- Counts what is unread and unseen there.
select relevo.inbox_counts('{"owner": "user-1"}');
