-- Returns the first attribute in which a phone differs from what an audience asks for; null if it has one of the values of each.
create or replace function relevo.attribute_mismatch(known jsonb, wanted jsonb) returns text
  language sql immutable
as $$
  select min(w.key)
    from (select coalesce(relevo.attribute_words(known), '{}') as words offset 0) k
    cross join jsonb_each(wanted) as w(key, value)
   where not (k.words && relevo.attribute_words(jsonb_build_object(w.key, w.value)))
$$;

revoke all on function relevo.attribute_mismatch from public;
