-- Returns the lanes that have something new, those of the given ones that still have something, and the next ones along the queue's index; of
-- each when the first thing falls due, and in how many seconds it may be sent. Every row has the last id given out in the queue, the oldest
-- transaction under way, the next one to come, and how far the walk along the index went. In shadow is what shadow mode keeps from being sent.
-- No row while dispatch is paused.
create or replace function relevo.due_lanes(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes text[],
                                   again_since timestamptz[], after_project text, after_lane text, most int)
  returns table (project text, lane text, due_at timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint,
                 next_xid bigint, walked int, last_project text, last_lane text, in_shadow boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
  set random_page_cost = 0 set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  return query
    with recursive way as ( -- the first of a lane in the index is also the one that falls due first
      (select 1 as place, q.project, q.lane, q.due_at from relevo.due_chunks q
        where (q.project, q.lane) > (after_project, after_lane)
        order by q.project, q.lane, q.due_at, q.id limit least(most, 1))
      union all
      select w.place + 1, n.project, n.lane, n.due_at
        from way w
        cross join lateral (select q.project, q.lane, q.due_at from relevo.due_chunks q
                             where (q.project, q.lane) > (w.project, w.lane)
                             order by q.project, q.lane, q.due_at, q.id limit 1) n
    ), walked as materialized (
      select w.place, w.project, w.lane, w.due_at from way w limit most
    ), lanes as materialized (
      select f.project, f.lane, min(f.due_at) as due_at
        from (select w.project, w.lane, w.due_at from walked w
              union all
              select n.project, n.lane, n.due_at
                from (select q.project, q.lane, q.due_at from relevo.due_chunks q where q.id > after_id order by q.id limit most_new) n
              union all
              select a.project, a.lane, n.due_at
                from unnest(again_projects, again_lanes, again_since) as a(project, lane, since)
                cross join lateral (select q.due_at from relevo.due_chunks q
                                     where q.project = a.project and q.lane = a.lane and q.due_at >= coalesce(a.since, '-infinity')
                                     order by q.due_at, q.id limit 1) n) f
       group by f.project, f.lane
    ), head as materialized (
      select coalesce((select s.last_value from pg_sequences s where s.schemaname = 'relevo' and s.sequencename = 'due_chunks_id_seq'), 0) as numbered,
             pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest_xid,
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid,
             (select count(*)::int from walked) as walked
    )
    select l.project, l.lane, case when l.due_at > '2000-01-01Z' then least(l.due_at, '9000-01-01Z') end, -- no other is worth a look's failing
           extract(epoch from least(greatest(l.due_at, case when p.breaker <> 'closed' then p.probe_at else p.rest_until end, '2000-01-01Z'),
                                    '9000-01-01Z') - at)::float8,
           coalesce(p.breaker <> 'closed', false), h.numbered, h.oldest_xid, h.next_xid, h.walked, w.project, w.lane,
           a.any_shadow and coalesce(l.due_at < relevo.shadow_until(l.project), false)
      from head h
      cross join (select exists (select from relevo.shadow_modes) as any_shadow) a
      left join walked w on w.place = h.walked
      left join lanes l on true
      left join relevo.projects p on p.project = l.project;
end
$$;

revoke all on function relevo.due_lanes from public;
