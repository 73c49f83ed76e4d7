-- Returns the names of the fields in which two contents differ, but not the values of arguments, data and push, which may be secret.
create or replace function relevo.name_differences(was jsonb, given jsonb) returns text[]
  language sql immutable
as $$
  select array_agg(case
           when f.name in ('data', 'push', 'matching', 'where', 'arguments', 'batch') then format('%s differs in %s', f.name, (
             select string_agg(left(k.name, 60), ', ' order by k.name)
               from (select k.name from jsonb_object_keys((was -> f.name) || (given -> f.name)) as k(name)
                      where was -> f.name -> k.name is distinct from given -> f.name -> k.name
                      order by k.name limit 5) k))
           when f.name in ('owners', 'installations', 'topics') then
             format('%s differ (%s named, %s given)', f.name, jsonb_array_length(was -> f.name), jsonb_array_length(given -> f.name))
           else format('%s is %s, given %s', f.name, relevo.shown(was -> f.name), relevo.shown(given -> f.name)) end order by f.place)
    from unnest(array['audience', 'owners', 'installations', 'topics', 'matching', 'where', 'title', 'body', 'arguments', 'data', 'push', 'category', 'lane',
                      'at_most_once', 'collapse', 'batch']) with ordinality as f(name, place)
   where was -> f.name is distinct from given -> f.name
$$;

revoke all on function relevo.name_differences from public;
