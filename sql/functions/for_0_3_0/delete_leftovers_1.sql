-- delete_leftovers as 0.3.0 calls it: of the first event of which something is left; 0 if there is none.
create or replace function relevo.delete_leftovers_1(most int) returns int
  language sql volatile
as $$
  select coalesce((select relevo.delete_leftovers(d.event_id, $1)
                     from (select o.event_id from relevo.deleted_events o order by o.event_id limit 1 for update skip locked) d), 0)
$$;

revoke all on function relevo.delete_leftovers_1 from public;
