-- Moves a batch of a month's events to the cold table, with the sums of their deliveries. Their keys stay, those of personal events as a hash.
-- Of personal events the cold table gets only the columns named here, of others all.
create or replace function relevo.retire_events(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text;
  impersonal text[] := array['id', 'event_type', 'licitacion_id', 'audience', 'category', 'lane', 'at_most_once', 'scheduled_at', 'deadline_at', 'state',
    'event_day', 'fanout_started_at', 'fanout_finished_at', 'first_sent_at', 'targets_selected', 'deliveries_created', 'ended_at', 'created_at', 'updated_at',
    'opened_count', 'read_count', 'traceparent'];
  columns text;
  contents text;
  ids bigint[];
  moved int;
begin
  -- before the events, as who forgets somebody does: whoever is being forgotten meanwhile is gone first, and no deadlock
  perform relevo.lock_alone('keep_inbox_items');
  place := relevo.open_cold_table('notification_events', of_month, rows_per_part);
  perform relevo.carry_columns('notification_events', of_month);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum),
         string_agg(case when h.attname is null then $sql$coalesce(t.deliveries, '{}')$sql$
                         when h.attname = any (impersonal) then format('g.%I', h.attname)
                         else format($sql$case when g.audience <> 'installations' then g.%I end$sql$, h.attname) end, ', ' order by a.attnum)
    into columns, contents
    from pg_attribute a
    left join pg_attribute h on h.attrelid = 'relevo.notification_events'::regclass and h.attname = a.attname and not h.attisdropped
   where a.attrelid = format('relevo_archive.%I', place)::regclass and a.attnum > 0 and not a.attisdropped
     and (h.attname is not null or a.attname = 'deliveries');
  ids := array(select e.id from relevo.notification_events e
                where relevo.event_is_over(e) and relevo.event_month(e) = of_month order by e.id limit most for update);
  perform relevo.keep_missed_items(ids);
  perform relevo.add_reactions(ids);
  -- the changes first: a reaper that is folding them is waited for
  with folded as (
    delete from relevo.event_progress_deltas d where d.event_id = any (ids) returning d.event_id, d.status, d.deliveries
  )
  insert into relevo.event_progress as p (event_id, status, deliveries)
  select f.event_id, f.status, sum(f.deliveries) from folded f group by f.event_id, f.status order by f.event_id, f.status
  on conflict (event_id, status) do update set deliveries = p.deliveries + excluded.deliveries;
  execute format($sql$
    with sums as (
      delete from relevo.event_progress p where p.event_id = any ($1) returning p.event_id, p.status, p.deliveries
    ), told as (
      select s.event_id, jsonb_object_agg(s.status, s.deliveries) filter (where s.deliveries <> 0) as deliveries from sums s group by s.event_id
    ), gone as (
      delete from relevo.notification_events e where e.id = any ($1) returning e.*
    ), kept as (
      insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month, project)
      select g.event_type, case when g.audience = 'installations' then relevo.hidden_key(g.event_type, g.event_key) else g.event_key end, g.id,
             case when g.audience = 'installations' then '' else g.content_hash end, g.state, $2, g.project
        from gone g
    )
    insert into relevo_archive.%I (%s)
    select %s
      from gone g
      left join told t on t.event_id = g.id$sql$, place, columns, contents)
  using ids, of_month;
  get diagnostics moved = row_count;
  return moved;
end
$$;

revoke all on function relevo.retire_events from public;
