-- name: find_retirable
-- Finds the months of deliveries and journal that are past their retention, oldest first, how large they are, and how much of them was copied for inboxes.
select p.entity, p.month, coalesce(x.state, 'open') as state, p.blocks, x.rows, p.file,
       case when x.kept_file = p.file then x.kept_blocks else 0 end as kept_blocks
  from (select e.entity, pg_relation_filenode(c.oid) as file, pg_relation_size(c.oid) / current_setting('block_size')::bigint as blocks,
               case when c.relname ~ ('^' || e.entity || E'_\\d{4}_(0[1-9]|1[0-2])$') then to_date(right(c.relname, 7), 'YYYY_MM') end as month
          from unnest(array['notification_deliveries', 'push_requests']) as e(entity)
          join pg_inherits i on i.inhparent = format('relevo.%%I', e.entity)::regclass
          join pg_class c on c.oid = i.inhrelid) p
  left join relevo.archive_exports x on x.entity = p.entity and x.month = p.month
 where (p.month + interval '1 month')::date + %(retention_days)s::int <= (relevo.now(%(now)s) at time zone 'UTC')::date
   and p.entity || to_char(p.month, '_YYYY_MM') <> all (%(given_up)s::text[])
 order by p.month, p.entity
 limit 1;

-- name: list_foreign_partitions
-- Lists the partitions of deliveries and journal that belong to no month, such as a DEFAULT one. Cleanup never retires them, and they may prevent
-- the partition of a month.
select p.oid::regclass::text, c.oid::regclass::text
  from pg_class p
  join pg_inherits i on i.inhparent = p.oid
  join pg_class c on c.oid = i.inhrelid
 where p.oid in ('relevo.notification_deliveries'::regclass, 'relevo.push_requests'::regclass)
   and c.relname !~ ('^' || p.relname || E'_\\d{4}_(0[1-9]|1[0-2])$')
 order by 2;

-- name: find_archive_schema
-- Returns whether the schema for retired months is there, and who has to own it: the owner of the schema relevo.
select to_regnamespace('relevo_archive') is not null, (select n.nspowner::regrole::text from pg_namespace n where n.nspname = 'relevo');

-- name: wait_briefly
-- Lets this transaction wait for a lock only so long that nobody who queues behind it notices.
select set_config('lock_timeout', %(lock_ms)s::text, true);

-- name: look_for_open
-- Returns whether something of a month is still to be written.
select relevo.is_open(%(entity)s, %(month)s);

-- name: close_deliveries
-- Ends some of what is still open in an old month and not claimed, with a reason, and returns how many.
select relevo.close_deliveries(%(month)s, %(limit)s, %(now)s);

-- name: count_unfinished
-- Counts the deliveries in a range of a month's blocks that are not final.
select relevo.count_unfinished(%(month)s, %(from_block)s, %(blocks)s);

-- name: seal_month
-- Seals a month, unless something of it is open: from its commit on nobody writes to it.
select relevo.seal_month(%(entity)s, %(month)s, %(part_rows)s);

-- name: count_rows
-- Counts the rows in a range of a sealed month's blocks.
select relevo.count_rows(%(entity)s, %(month)s, %(from_block)s, %(blocks)s);

-- name: record_rows
-- Notes how many rows a sealed month has: its count is final.
update relevo.archive_exports set rows = %(rows)s, updated_at = now() where entity = %(entity)s and month = %(month)s and state = 'sealed';

-- name: keeps_inbox_items
-- Returns whether some type keeps events in inboxes for longer than a month's deliveries stay.
select (%(month)s::date + interval '1 month') at time zone 'UTC'
       > relevo.now(%(now)s) - greatest(90, (select max(t.inbox_days) from relevo.event_types t where t.inbox_days is not null)) * interval '1 day';

-- name: keep_inbox_items
-- Copies what stays in inboxes for longer from a range of a sealed month's blocks, and returns how many items.
select relevo.keep_inbox_items(%(month)s, %(from_block)s, %(blocks)s, %(now)s);

-- name: record_kept_blocks
-- Notes how many of a sealed month's blocks were copied from, and of which file they are.
update relevo.archive_exports set kept_blocks = %(kept_blocks)s, kept_file = %(file)s::oid, updated_at = now()
 where entity = %(entity)s and month = %(month)s and state = 'sealed';

-- name: retire_month
-- Detaches a sealed month and moves it to the cold schema, without touching a row.
select relevo.retire_month(%(entity)s, %(month)s);

-- name: find_old_items
-- Finds the oldest month of items that is past its days, or without these past its months, and may still be moved.
with recursive hot as materialized (
  select date_trunc('month', relevo.now(%(now)s) at time zone 'UTC'
                             - coalesce(%(hot_days)s::int * interval '1 day', %(hot_months)s * interval '1 month')) at time zone 'UTC' as since
), found as ( -- by skipping along the index from month to month
  (select date_trunc('month', l.created_at at time zone 'UTC')::date as month from relevo.licitaciones l
    where l.created_at < (select h.since from hot h)
    order by l.created_at, l.id limit 1)
  union all
  select n.month
    from found f
    cross join lateral (select date_trunc('month', l.created_at at time zone 'UTC')::date as month from relevo.licitaciones l
                         where l.created_at >= (f.month + interval '1 month') at time zone 'UTC' and l.created_at < (select h.since from hot h)
                         order by l.created_at, l.id limit 1) n
)
select min(f.month) as month
  from found f
 where not exists (select from relevo.archive_exports x where x.entity = 'licitaciones' and x.month = f.month and x.state <> 'moving')
   and f.month <> all (%(given_up)s::date[]);

-- name: find_old_events
-- Finds the oldest month of finished events whose deliveries were retired, or that had none, and that may still be moved.
with recursive past as materialized ( -- the last month that is wholly past the retention
  select (date_trunc('month', (relevo.now(%(now)s) at time zone 'UTC')::date - %(retention_days)s::int) - interval '1 month')::date as month
), found as ( -- by skipping along the index from month to month
  (select relevo.event_month(e) as month from relevo.notification_events e
    where relevo.event_month(e) <= (select p.month from past p)
    order by relevo.event_month(e), e.id limit 1)
  union all
  select n.month
    from found f
    cross join lateral (select relevo.event_month(e) as month from relevo.notification_events e
                         where relevo.event_month(e) > f.month and relevo.event_month(e) <= (select p.month from past p)
                         order by relevo.event_month(e), e.id limit 1) n
)
select min(f.month) as month
  from found f
 where to_regclass('relevo.notification_deliveries' || to_char(f.month, '_YYYY_MM')) is null
   and not exists (select from relevo.archive_exports x where x.entity = 'notification_events' and x.month = f.month and x.state <> 'moving')
   and f.month <> all (%(given_up)s::date[])
   and exists (select from relevo.notification_events e where relevo.event_month(e) = f.month and relevo.event_is_over(e));

-- name: retire_items
-- Moves a batch of a month's items to the cold schema.
select relevo.retire_items(%(month)s, %(part_rows)s, %(limit)s);

-- name: retire_events
-- Moves a batch of a month's events to the cold schema; their keys stay.
select relevo.retire_events(%(month)s, %(part_rows)s, %(limit)s);

-- name: find_moving
-- Finds the oldest month of an entity that is being moved.
select min(x.month) from relevo.archive_exports x where x.entity = %(entity)s and x.state = 'moving' and x.month <> all (%(given_up)s::date[]);

-- name: finish_moving
-- Seals a month of a plain table if nothing of it is left in the hot one.
select relevo.finish_moving(%(entity)s, %(month)s);
