-- Returns which of some events carry news; of one that is archived in this very statement the type is found among the keys.
create or replace function relevo.news_among(ids bigint[]) returns bigint[]
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(u.id), '{}')
    from (select distinct u.id from unnest(ids) as u(id)) u
    left join lateral (select e.event_type from relevo.notification_events e where e.id = u.id offset 0) e on true
    left join lateral (select k.event_type from relevo.event_keys k where k.event_id = u.id offset 0) k on true
   where coalesce(e.event_type, k.event_type) = 'relevo.news'
$$;

revoke all on function relevo.news_among from public;
