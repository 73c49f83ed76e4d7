-- Registers installations in order, each as if it came alone, and returns their ids in order. It takes tokens over from former holders, counts
-- changes, and switches pushes on again. A known installation keeps the fields that are not given.
create or replace function relevo.register_many(installations jsonb) returns uuid[]
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  firsts int[]; -- the places of those that share neither id nor token with one before them
  others int[];
  ids uuid[];
  written uuid[];
begin
  if jsonb_typeof(installations) is distinct from 'array' or jsonb_array_length(installations) > 100000 then
    perform relevo.refuse('installations must be a list of at most 100000 installations');
  end if;
  installations := relevo.checked_installations(installations);
  select coalesce(array_agg(n.ord order by n.ord) filter (where n.first), '{}'), coalesce(array_agg(n.ord order by n.ord) filter (where not n.first), '{}')
    into firsts, others
    from (select g.ord::int, (g.i ->> 'installation_id' is null or row_number() over (partition by lower(g.i ->> 'installation_id') order by g.ord) = 1)
                         and (g.i ->> 'token' is null or row_number() over (partition by g.i ->> 'token' order by g.ord) = 1) as first
            from jsonb_array_elements(installations) with ordinality as g(i, ord)) n;
  for tries in 1 .. 10 loop
    begin
      perform relevo.lock_registrations(installations); -- those of all at once, in one order
      ids := null;
      written := relevo.write_installations(case when others = '{}' then installations
        else (select jsonb_agg(installations -> (f.ord - 1) order by f.ord) from unnest(firsts) as f(ord)) end);
      for n in 1 .. case when others = '{}' then 0 else cardinality(firsts) end loop
        ids[firsts[n]] := written[n];
      end loop;
      for n in 1 .. cardinality(others) loop
        ids[others[n]] := (relevo.write_installations(jsonb_build_array(installations -> (others[n] - 1))))[1];
      end loop;
      exit;
    exception when unique_violation or deadlock_detected then
      -- somebody else took one of the tokens meanwhile, changed a provider, or waits for what is undone here; the next look sees that
      if tries = 10 then
        raise;
      end if;
    end;
  end loop;
  return coalesce(ids, written, '{}');
end
$$;

revoke all on function relevo.register_many from public;
