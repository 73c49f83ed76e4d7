-- Makes the partitions of some months that are not there; one that was retired is never made again. Those of deliveries get their primary key
-- last.
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
      perform relevo.take_turn('ensure_partitions');
      -- made by another while we waited? Asked of the table, for to_regclass remembers its first answer
      continue when exists (select from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relname = partition_name);
      execute format('create table relevo.%I (like relevo.%I including defaults including constraints) with '
        '(fillfactor = %s, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, '
        'autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, '
        'autovacuum_analyze_scale_factor = 0.02)', partition_name, parent, case parent when 'push_requests' then 70 else 30 end);
      if parent = 'notification_deliveries' then
        execute format('alter table relevo.%I add unique (event_day, notification_event_id, installation_id)', partition_name);
        execute format('create index on relevo.%I (installation_id, id)', partition_name);
        execute format('alter table relevo.%I add primary key (event_day, id)', partition_name);
        execute format('alter table relevo.%I alter event_day set (n_distinct = 1)', partition_name);
      end if;
      execute format('alter table relevo.%I attach partition relevo.%I for values from (%L) to (%L)',
        parent, partition_name, month_start, (month_start + interval '1 month')::date);
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;

revoke all on function relevo.ensure_partitions from public;
