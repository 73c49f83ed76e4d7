-- Adds the oldest changes of how often events were opened and read to their events, passing by those that another holds; returns how many of each
-- kind. Those of events that are gone are dropped.
create or replace function relevo.fold_reactions(most int) returns table (kind text, count bigint)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  meant bigint[] := array(select distinct o.event_id from (select r.event_id from relevo.event_reactions r order by r.id limit most) o);
begin
  if meant = '{}' then
    return;
  end if;
  delete from relevo.event_reactions r
   where r.event_id = any (meant) and not exists (select from relevo.notification_events e where e.id = r.event_id);
  return query select a.kind, a.count from relevo.add_reactions(array(
    select e.id from relevo.notification_events e where e.id = any (meant) order by e.id for no key update skip locked)) a;
end
$$;

revoke all on function relevo.fold_reactions from public;
