-- Does what relevo.lock_shared does for many names, in one order for everybody who names several.
create or replace function relevo.lock_all_shared(names text[]) returns void
  language plpgsql volatile strict
  set enable_seqscan = off -- lookups only
as $$
declare
  keys bigint[] := array(select distinct hashtextextended(u.name, 0) as key from unnest(names) as u(name) order by key);
  held bigint;
begin
  loop
    perform from relevo.shared_locks l where l.key = any (keys) order by l.key for key share;
    get diagnostics held = row_count;
    exit when held = cardinality(keys);
    insert into relevo.shared_locks (key) select u.key from unnest(keys) as u(key) on conflict do nothing;
  end loop;
end
$$;

revoke all on function relevo.lock_all_shared from public;
