-- Does what relevo.take_turn does for many names, in one order for everybody who names several.
create or replace function relevo.take_turns(names text[]) returns void
  language plpgsql volatile strict
  set enable_seqscan = off -- lookups only
as $$
declare
  keys bigint[] := array(select distinct hashtextextended(u.name, 0) as key from unnest(names) as u(name) order by key);
begin
  if keys <> '{}' then
    insert into relevo.turns (key) select u.key from unnest(keys) as u(key); -- the keys are in order
    delete from relevo.turns t where t.key = any (keys);
  end if;
end
$$;

revoke all on function relevo.take_turns from public;
