-- Adds the changes of how often some events, which the caller has locked, were opened and read to the events; returns how many of each kind.
create or replace function relevo.add_reactions(of_events bigint[]) returns table (kind text, count bigint)
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  with taken as (
    delete from relevo.event_reactions r where r.event_id = any (of_events) returning r.event_id, r.kind, r.count
  ), told as (
    update relevo.notification_events e
       set opened_count = coalesce(e.opened_count + s.opened, s.opened, e.opened_count), read_count = coalesce(e.read_count + s.read, s.read, e.read_count)
      from (select t.event_id, sum(t.count) filter (where t.kind = 'opened') as opened, sum(t.count) filter (where t.kind = 'read') as read
              from taken t group by t.event_id) s
     where e.id = s.event_id
  )
  select t.kind, sum(t.count) from taken t group by t.kind
$$;

revoke all on function relevo.add_reactions from public;
