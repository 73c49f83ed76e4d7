-- Returns whether each of some phones is just as it was seen at its place in the table's file.
-- Why a place is enough: a row that is visible there now, and whose writer was done before the first look, was visible then, too; in one file a
-- place holds one such row, so it is the one that was seen, and a change of a phone writes another. Rows move without being written only into a
-- new file. Anything else counts as no, and the caller looks phones up by key; so does a row that was not written for two thousand million
-- transactions, whose writer's number means another by now. An event may have been handled meanwhile on another phone of an owner, which
-- changes no phone.
create or replace function relevo.phones_unmoved(places tid[], as_of text, events bigint[]) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  least int := age(split_part(as_of, ' ', 2)::xid);
begin
  return least > 0
    and pg_relation_filenode('relevo.device_installations') = split_part(as_of, ' ', 1)::oid
    and not exists (select from relevo.event_completions c where c.event_id = any (events))
    and cardinality(places) = (select count(*) from relevo.device_installations i where i.ctid = any (places) and age(i.xmin) > least);
end
$$;

revoke all on function relevo.phones_unmoved from public;
