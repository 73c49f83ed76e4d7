-- Returns the first attribute in which a phone differs from what an audience asks for; null if it has one of the values of each.
create or replace function relevo.attribute_mismatch(known jsonb, wanted jsonb) returns text
  language sql immutable
as $$
  select min(w.key) from jsonb_each(wanted) as w(key, value) where not relevo.has_attribute(known, w.key, w.value)
$$;

revoke all on function relevo.attribute_mismatch from public;
