-- Returns an event and how far it is, without counting deliveries; progress is its state, and once its deliveries are made: sending, sent
-- (receipts are awaited) or finished.
create or replace function relevo.get_event(id_of_event bigint) returns jsonb
  language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('id', e.id, 'type', e.event_type, 'key', e.event_key, 'project', e.project, 'state', e.state,
           'progress', case when e.state <> 'fanned' then e.state when c.counts ?| array['pending', 'retryable'] then 'sending'
                            when c.counts ? 'sent' then 'sent' else 'finished' end,
           'title', e.title, 'body', e.body,
           'audience', case when e.audience = 'installations' and exists (select from relevo.event_owners o where o.event_id = e.id)
                            then 'owners' else e.audience end,
           'topics', to_jsonb(e.match_topics), 'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
           'created_at', e.created_at, 'scheduled_at', e.scheduled_at, 'deadline_at', e.deadline_at,
           'fanout_started_at', e.fanout_started_at, 'fanout_finished_at', e.fanout_finished_at,
           'ended_at', e.ended_at, 'end_reason', e.end_reason, 'targets_selected', e.targets_selected,
           'deliveries_created', e.deliveries_created, 'licitacion_id', e.licitacion_id, 'collapse', e.collapse, 'batch', e.batch, 'deliveries', c.counts, 'reactions', relevo.reactions_of(e))
    from relevo.notification_events e
    cross join lateral (select coalesce(jsonb_object_agg(s.status, s.n), '{}') as counts from (
              select p.status, sum(p.deliveries) as n from (
                select f.status, f.deliveries from relevo.event_progress f where f.event_id = e.id
                union all
                select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) p
               group by p.status having sum(p.deliveries) <> 0) s) c
   where e.id = id_of_event
  union all
  select jsonb_build_object('id', k.event_id, 'type', k.event_type, 'key', k.event_key, 'project', k.project, 'state', k.state,
           'progress', case when k.state = 'fanned' then 'finished' else k.state end, 'title', '', 'body', '',
           'deliveries', jsonb '{}', 'archived', to_char(k.month, 'YYYY-MM'))
    from relevo.event_keys k where k.event_id = id_of_event
$$;

revoke all on function relevo.get_event from public;
