-- Deletes up to so many phones that left an inbox so long ago that nothing in it came by them, and returns how many. With the last one goes the inbox, if nothing
-- leads to its owner any more.
create or replace function relevo.prune_former_phones(most int, given_at timestamptz) returns int
  language plpgsql volatile
as $$
declare
  oldest timestamptz := relevo.now(given_at)
    - (greatest(90, (select max(t.inbox_days) from relevo.event_types t where t.inbox_days is not null)) + 1) * interval '1 day';
  pruned int;
  emptied bigint[];
begin
  with found as materialized (
    select f.inbox_id, f.installation_id from relevo.former_phones f where f.left_at < oldest order by f.left_at limit most
  ), held as materialized ( -- inboxes first, and those that somebody works on another time: nobody waits for this, nor this for anybody
    select b.id from relevo.inboxes b where b.id in (select f.inbox_id from found f) order by b.id for update skip locked
  ), old as materialized (
    select f.inbox_id, f.installation_id from relevo.former_phones f
     where (f.inbox_id, f.installation_id) in (select n.inbox_id, n.installation_id from found n)
       and (f.inbox_id in (select h.id from held h) or not exists (select from relevo.inboxes b where b.id = f.inbox_id))
       for update skip locked
  ), gone as (
    delete from relevo.former_phones f using old where f.inbox_id = old.inbox_id and f.installation_id = old.installation_id returning f.inbox_id
  )
  select count(*)::int, array_agg(distinct g.inbox_id) into pruned, emptied from gone g;
  perform relevo.delete_empty_inboxes(emptied);
  return pruned;
end
$$;

revoke all on function relevo.prune_former_phones from public;
